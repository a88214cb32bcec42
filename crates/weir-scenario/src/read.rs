//! From a file to a scenario, and back to text.

use crate::diagnostic::{self, Diagnostic, Diagnostics};
use crate::scenario::Scenario;
use std::path::Path;

impl Scenario {
    /// Reads and validates a scenario file.
    pub fn read(path: &Path) -> Result<Scenario, Diagnostics> {
        let file = path.display().to_string();
        let whole = |message: String, help: &str| {
            let help = help.to_string();
            Diagnostics(vec![Diagnostic {
                file: file.clone(),
                line: 0,
                column: 0,
                text: String::new(),
                width: 0,
                message,
                help,
            }])
        };
        let bytes = std::fs::read(path)
            .map_err(|error| whole(format!("cannot be read: {error}"), "name an existing scenario file"))?;
        let source = String::from_utf8(bytes)
            .map_err(|_| whole("is not text in UTF-8".into(), "a scenario is TOML: save it as UTF-8"))?;
        let mut scenario = Scenario::from_toml(&file, &source)?;
        scenario.folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        if scenario.name.is_empty() {
            scenario.name =
                path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok(scenario)
    }

    /// Reads and validates a scenario from text; `file` is what errors call it.
    pub fn from_toml(file: &str, source: &str) -> Result<Scenario, Diagnostics> {
        toml::from_str(source).map_err(|error| Diagnostics(vec![located(file, source, &error)]))
    }

    /// The scenario as TOML: reads back as the same scenario.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of a scenario has a form in TOML")
    }
}

/// An error of the TOML reader or of one of our quantities, in our form.
fn located(file: &str, source: &str, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let (message, help) = reword(error.message());
    diagnostic::at(file, source, span, message, help)
}

/// What serde and toml say, in our words, with a remedy.
fn reword(message: &str) -> (String, String) {
    if let Some((what, help)) = message.split_once('\n') {
        return (what.to_string(), help.to_string());
    }
    (message.to_string(), "see the keys of a scenario".to_string())
}
