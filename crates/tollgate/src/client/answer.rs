//! A response, before it is parsed.

use serde::de::DeserializeOwned;

use super::fault::Fault;
use super::server::Server;
use super::wire::{Decision, Problem};

/// A response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The ETag of the resource in the body, with its quotes.
    pub tag: Option<String>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

impl Answer {
    /// Parses the body.
    pub fn read<T: DeserializeOwned>(&self, server: &Server) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| Fault::Unintelligible {
            server: server.to_string(),
            why: self.complaint(&error),
        })
    }

    /// Whether it is a decision about an attempt, and not a refusal of the request.
    pub(super) fn is_decision(&self) -> bool {
        serde_json::from_slice::<Decision>(&self.body).is_ok()
    }

    /// The response, unless the server refused or failed.
    pub(super) fn unless_refused(self, server: &Server) -> Result<Self, Fault> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        // A proxy may have answered; only a problem with a title is the server's.
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
