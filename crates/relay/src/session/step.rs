//! What a session needs to know, and what it asks for.

use std::sync::Arc;

use super::data::DataFault;
use super::headers::HeaderFault;
use super::reply::Reply;
use super::sasl::Login;

/// What a server offers to every client.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The name of this server.
    pub hostname: String,
    /// The largest message, in bytes.
    pub max_size: u64,
    /// The most recipients of one message.
    pub max_recipients: usize,
    /// Whether the server has a certificate, and so can begin TLS.
    pub tls: bool,
    /// Whether there are users who can log in.
    pub users: bool,
}

/// Whose mail a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user who logged in; `None` for a client that its network vouches for.
    pub user: Option<Arc<str>>,
    /// Whom the mail belongs to.
    pub tenant: Arc<str>,
    /// The domains that its senders may have, in their normal form; any if there are none.
    pub senders: Arc<[String]>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the reply, and pass the next line to [`super::Session::line`].
    Reply(Reply),
    /// Send the reply, and close the connection.
    Close(Reply),
    /// Send the reply, throw away all input that came with the command, begin TLS, and call
    /// [`super::Session::secured`].
    StartTls(Reply),
    /// Find out whether the name and the password are right, and call [`super::Session::logged_in`].
    LogIn(Login),
    /// Find out how many recipients a message of the transaction's sender may have, and call
    /// [`super::Session::sender_known`].
    Sender,
    /// Find out whether the message may come, and call [`super::Session::admitted`].
    Admit,
    /// Send the reply, receive the text, and call [`super::Session::received`].
    Receive(Reply),
}

/// What came of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// Name and password are right.
    Identified(Identity),
    /// They are not.
    Wrong,
    /// A guard has locked the account or the address, for so many seconds if that is known.
    Locked {
        /// When to try again.
        seconds: Option<u64>,
    },
    /// Nobody can tell now.
    Unavailable,
}

/// What the client said in EHLO or HELO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The name that it gives itself.
    pub name: String,
    /// Whether it was EHLO.
    pub extended: bool,
}

/// Why a text cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFault {
    /// For how it was sent.
    Data(DataFault),
    /// For its header.
    Header(HeaderFault),
}
