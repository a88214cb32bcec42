//! Why the lab has no answer.

use crate::node::NodeError;

/// Why there is no report.
#[derive(Debug)]
pub enum Error {
    /// Namespaces and raw sockets need root.
    NotRoot,
    /// Not possible here: no such kernel feature, or nothing that the lab can run.
    Impossible(String),
    /// The configuration or the scenario is wrong.
    Input(String),
    /// Something broke on the way.
    Broke(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::NotRoot => f.write_str("the lab makes network namespaces: run it as root"),
            Error::Impossible(what) | Error::Input(what) | Error::Broke(what) => f.write_str(what),
        }
    }
}
impl std::error::Error for Error {}
impl From<NodeError> for Error {
    fn from(e: NodeError) -> Self {
        Error::Broke(e.to_string())
    }
}
