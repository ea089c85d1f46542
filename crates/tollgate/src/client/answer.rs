//! An answer as it came, before anybody makes sense of it.

use serde::de::DeserializeOwned;

use super::fault::Fault;
use super::server::Server;
use super::wire::{Decision, Problem};

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The tag of what the body shows, in its quotes.
    pub tag: Option<String>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

impl Answer {
    /// What the body says.
    pub fn read<T: DeserializeOwned>(&self, server: &Server) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| Fault::Unintelligible {
            server: server.to_string(),
            why: self.complaint(&error),
        })
    }

    /// Whether it decides an attempt, as opposed to refusing to.
    pub(super) fn is_decision(&self) -> bool {
        serde_json::from_slice::<Decision>(&self.body).is_ok()
    }

    /// The answer, unless it says that the server refuses or cannot.
    pub(super) fn unless_refused(self, server: &Server) -> Result<Self, Fault> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        // Anything may stand between here and the server; only a problem with a title is the server's.
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => Err(Fault::Refused { answer: self, problem: Box::new(problem) }),
            Err(_) => {
                let why = format!("status {}, and no reason", self.status);
                Err(Fault::Unintelligible { server: server.to_string(), why })
            }
        }
    }

    fn complaint(&self, error: &serde_json::Error) -> String {
        if self.body.is_empty() {
            format!("status {} with nothing in it", self.status)
        } else {
            error.to_string()
        }
    }
}
