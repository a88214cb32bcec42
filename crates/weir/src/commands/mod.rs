//! One module per group of subcommands.

pub mod accuracy;
pub mod bench;
pub mod broker;
mod cage;
pub mod check;
pub mod conf;
pub mod disciplines;
pub mod edge;
pub mod experiment;
pub mod fail_open;
mod kind;
pub mod live;
pub mod metrics;
pub mod probe;
pub mod report;
pub mod run;
pub mod sla;
pub mod tables;
pub mod top;

use std::fmt::Display;
use weir_report::disk;
use weir_text::{Diagnostic, Diagnostics, include};

/// Why a command did not succeed: an exit code, and what to say.
pub struct Failure {
    /// 1 failed, 2 usage or configuration, 3 not possible here.
    pub code: u8,
    /// May be empty where everything is said already.
    pub message: String,
}

impl Failure {
    /// A run broke, or an expectation was missed.
    pub fn failed(message: impl Display) -> Self {
        Failure { code: 1, message: message.to_string() }
    }
    /// A person's mistake.
    pub fn usage(message: impl Display) -> Self {
        Failure { code: 2, message: message.to_string() }
    }
    /// Not possible here.
    pub fn impossible(message: impl Display) -> Self {
        Failure { code: 3, message: message.to_string() }
    }
}

/// The text of a person's file.
pub fn text_of(path: &std::path::Path) -> Result<String, Failure> {
    disk::read_text(path, weir_conf::MAX_BYTES).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => {
            Failure::usage(format!("{}: not text in UTF-8: a configuration is plain text", path.display()))
        }
        _ => Failure::usage(format!("{}: {e}", path.display())),
    })
}

/// The text of a configuration with the files that it includes.
pub fn configuration_of(path: &std::path::Path) -> Result<String, Failure> {
    kind::wants(kind::Kind::Configuration, path)?;
    let text = text_of(path)?;
    included(&path.display().to_string(), &text).map_err(|said| Failure::usage(Diagnostics(said)))
}

/// The text of the file `name` with the files that it includes.
fn included(name: &str, text: &str) -> Result<String, Vec<Diagnostic>> {
    include::whole(name, text, weir_conf::MAX_BYTES, &mut |name| {
        // The name stands in the message already.
        text_of(name.as_ref()).map_err(|failure| failure.message.replacen(&format!("{name}: "), "", 1))
    })
}

/// The result of a command.
pub type Done = Result<(), Failure>;

/// Prints JSON on one line of standard output.
pub fn print_json(value: &impl serde::Serialize) -> Done {
    let text = serde_json::to_string(value).map_err(Failure::failed)?;
    out!("{text}");
    Ok(())
}
