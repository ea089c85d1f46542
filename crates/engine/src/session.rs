//! Sessions of operators, as text: which access key signed in, and until when. Sealed like receipts, so that
//! no client can forge one and the server need not keep any. All nodes that share a store accept them.

use tollgate_core::{Receipt, ReceiptLine, Timestamp};

use crate::engine::Engine;
use crate::receipt::{Home, Kind};
use crate::ticket;

/// A session that this engine or another node sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The SHA-256 of the token that signed in.
    pub hash: [u8; 32],
    /// When it ends.
    pub until: Timestamp,
}

impl Engine {
    /// Seals a session.
    pub fn seal_session(&self, session: &Session) -> String {
        let line =
            ReceiptLine { rule: String::new(), key: data_encoding::HEXLOWER.encode(&session.hash), cost: 0 };
        let receipt = Receipt { ticket: ticket::next(), at: session.until, taken: vec![line] };
        let seal = |home| self.seals.with(home, |seal| seal.seal(Kind::Session, &receipt));
        seal(Home::Store).or_else(|| seal(Home::Local)).expect("every process has a seal of its own")
    }

    /// Opens a session; `None` if no node of this store sealed it, or if it has ended.
    pub fn open_session(&self, text: &str, now: Timestamp) -> Option<Session> {
        let (kind, receipt, _) = self.seals.open(text).ok()?;
        let line = receipt.taken.first().filter(|_| kind == Kind::Session && now < receipt.at)?;
        let hash = data_encoding::HEXLOWER.decode(line.key.as_bytes()).ok()?;
        Some(Session { hash: hash.try_into().ok()?, until: receipt.at })
    }
}
