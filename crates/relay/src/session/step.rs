//! The input and output of a session.

use std::fmt;
use std::sync::Arc;

use super::address::Address;
use super::data::DataFault;
use super::headers::HeaderFault;
use super::reply::Reply;
use super::sasl::Login;

/// The terms that a server offers to every client.
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

/// The identity under which a client sends mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user who logged in; `None` for a client whose network may send without a login.
    pub user: Option<Arc<str>>,
    /// The name of the access key that a client used.
    pub api_key: Option<Arc<str>>,
    /// The tenant that the mail belongs to.
    pub tenant: Arc<str>,
    /// The domains of its senders, in their normal form, and [`NULL_SENDER`] if it may use that too; any if the
    /// list is empty.
    pub senders: Arc<[String]>,
}

/// The null sender in a list of senders.
pub const NULL_SENDER: &str = "<>";

impl Identity {
    /// Whether mail from this sender, or from the null sender, may be sent under this identity.
    pub fn may_send_as(&self, sender: Option<&Address>) -> bool {
        let domain = shown_domain(sender);
        self.senders.is_empty() || self.senders.iter().any(|own| own == domain)
    }
}

/// The domain of a sender, or the null sender.
pub(crate) fn shown_domain(sender: Option<&Address>) -> &str {
    sender.map_or(NULL_SENDER, |sender| &sender.domain)
}

/// The action that the caller must perform next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the reply, and pass the next line to [`super::Session::line`].
    Reply(Reply),
    /// Send the reply, and close the connection.
    Close(Reply),
    /// Send the reply, discard all input that came with the command, begin TLS, and call
    /// [`super::Session::secured`].
    StartTls(Reply),
    /// Find out whether the name and the password are right, and call [`super::Session::logged_in`].
    LogIn(Login),
    /// Find out how many recipients a message of the transaction's sender may have, and call
    /// [`super::Session::sender_known`].
    Sender,
    /// Find out whether the message is allowed, and call [`super::Session::admitted`] or
    /// [`super::Session::refused`].
    Admit,
}

/// The outcome of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// Name and password are right.
    Identified(Identity),
    /// They are wrong.
    Wrong,
    /// A guard has locked the account or the address.
    Locked {
        /// The seconds until the next try, if known.
        seconds: Option<u64>,
    },
    /// The login cannot be checked now.
    Unavailable,
}

/// The client's EHLO or HELO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The name that it gives itself.
    pub name: String,
    /// Whether it was EHLO.
    pub extended: bool,
}

/// The reason why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFault {
    /// Because of the way in which it was sent.
    Data(DataFault),
    /// Because of its header.
    Header(HeaderFault),
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data(DataFault::BareLineEnd) => "the text contains a bare CR or LF",
            Self::Data(DataFault::Nul) => "the text contains a NUL",
            Self::Data(DataFault::TooLarge) => "the text is too large",
            Self::Header(HeaderFault::TooLarge) => "the header is too large",
            Self::Header(HeaderFault::Loop) => "the message is in a loop",
            Self::Header(HeaderFault::SeveralAuthors) => "the message has several From or Sender fields",
            Self::Header(HeaderFault::ForeignAuthor) => {
                "the client may not use the address in From or Sender"
            }
        })
    }
}
