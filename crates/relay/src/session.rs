//! One SMTP session, pure: lines and answers in, replies and effects out. No input or output, no clock.
//!
//! A caller passes each line to [`Session::line`] and follows the returned [`Step`]. If a step asks a question
//! (may this client log in, is this message allowed), the caller passes the answer to the method that the step
//! names, and gets the next step.

pub mod address;
mod author;
mod command;
pub mod data;
pub mod headers;
pub mod lines;
pub mod reply;
mod sasl;
mod step;
mod transaction;
pub mod xtext;

use std::sync::Arc;

use address::Address;
use command::{Command, Mail, Rcpt};
use data::DataFault;
use headers::HeaderFault;
use lines::Line;
use reply::Reply;
use sasl::{Exchange, SaslStep};
use transaction::Added;

pub use sasl::Login;
pub(crate) use step::shown_domain;
pub use step::{Greeting, Identity, LoginOutcome, NULL_SENDER, Step, Terms, TextFault};
pub use transaction::Transaction;

/// One session.
#[derive(Debug)]
pub struct Session {
    terms: Arc<Terms>,
    /// The client's identity without a login, if its network may send.
    network: Option<Identity>,
    secure: bool,
    greeting: Option<Greeting>,
    user: Option<Identity>,
    exchange: Option<Exchange>,
    transaction: Option<Transaction>,
    /// The number of wrong commands.
    bad: u32,
    /// The number of commands since the last message that do not advance a message.
    idle: u32,
    /// The number of recipients since the last message that were not added, because they were repeated or too
    /// many.
    surplus: u32,
    /// The number of failed logins.
    failed: u32,
}

/// The most wrong commands of a session, the most commands that do not advance a message, and the most failed
/// logins.
const MOST_BAD: u32 = 20;
const MOST_IDLE: u32 = 100;
/// The most recipients of a session that are not added. Clients send the whole list of a message at once, and
/// send the refused ones in another message.
const MOST_SURPLUS: u32 = 10_000;
const MOST_FAILED: u32 = 5;

impl Session {
    /// Begins a session. A client whose network may send without a login has an identity from the start;
    /// `secure` is true if the connection began with TLS.
    pub fn new(terms: Arc<Terms>, network: Option<Identity>, secure: bool) -> Self {
        Self {
            terms,
            network,
            secure,
            greeting: None,
            user: None,
            exchange: None,
            transaction: None,
            bad: 0,
            idle: 0,
            surplus: 0,
            failed: 0,
        }
    }

    /// The first reply.
    pub fn greet(&self) -> Reply {
        Reply::plain(220, [format!("{} ESMTP tollgate", self.terms.hostname)])
    }

    /// The client's EHLO or HELO, if it sent one.
    pub fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_ref()
    }

    /// Whether TLS is in use.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The terms of the session.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The client's identity, if it has one.
    pub fn identity(&self) -> Option<&Identity> {
        self.user.as_ref().or(self.network.as_ref())
    }

    /// The announced message: its sender and recipients.
    pub fn transaction(&self) -> Option<&Transaction> {
        self.transaction.as_ref()
    }

    /// Handles a line.
    pub fn line(&mut self, line: Line<'_>) -> Step {
        // A malformed line also ends an AUTH exchange: the next line is a command.
        let exchange = self.exchange.take();
        let line = match line {
            Line::Text(line) => line,
            Line::TooLong if exchange.is_some() => {
                return self.wrong(Reply::new(500, "5.5.6", "Authentication exchange line is too long"));
            }
            Line::TooLong => return self.wrong(Reply::new(500, "5.5.2", "Line too long")),
            Line::Malformed => {
                return self.wrong(Reply::new(
                    500,
                    "5.5.2",
                    "Lines end in CR LF and contain neither CR nor NUL",
                ));
            }
        };
        if let Some(exchange) = exchange {
            let next = exchange.go_on(line);
            return self.go_on(next);
        }
        match Command::read(line) {
            Ok(command) => self.command(command),
            Err(reply) => self.wrong(reply),
        }
    }

    fn command(&mut self, command: Command<'_>) -> Step {
        match command {
            Command::Ehlo(name) => self.hello(name, true),
            Command::Helo(name) => self.hello(name, false),
            Command::StartTls => self.start_tls(),
            Command::Auth { mechanism, initial } => self.authenticate(mechanism, initial),
            Command::Mail(mail) => self.mail(mail),
            Command::Rcpt(rcpt) => self.rcpt(rcpt),
            Command::Data => self.data(),
            Command::Rset => {
                self.transaction = None;
                self.idle(Reply::new(250, "2.0.0", "Ok"))
            }
            Command::Noop => self.idle(Reply::new(250, "2.0.0", "Ok")),
            Command::Vrfy => self.idle(Reply::new(252, "2.5.0", "Cannot verify; send the message")),
            Command::Help => self.idle(Reply::new(214, "2.0.0", "See RFC 5321")),
            Command::Quit => Step::Close(Reply::new(221, "2.0.0", "Bye")),
        }
    }

    fn hello(&mut self, name: &str, extended: bool) -> Step {
        self.transaction = None;
        self.greeting = Some(Greeting { name: name.to_owned(), extended });
        let Terms { hostname, max_size, max_recipients, tls, users } = &*self.terms;
        if !extended {
            return self.idle(Reply::plain(250, [hostname.clone()]));
        }
        let mut lines = vec![hostname.clone(), "PIPELINING".to_owned(), format!("SIZE {max_size}")];
        if *tls && !self.secure {
            lines.push("STARTTLS".to_owned());
        }
        if *users && self.secure {
            lines.push("AUTH PLAIN LOGIN".to_owned());
        }
        lines.extend(["ENHANCEDSTATUSCODES", "8BITMIME", "SMTPUTF8", "DSN"].map(str::to_owned));
        lines.push(format!("LIMITS RCPTMAX={max_recipients}"));
        self.idle(Reply::plain(250, lines))
    }

    fn start_tls(&mut self) -> Step {
        if self.secure {
            return self.wrong(Reply::new(503, "5.5.1", "TLS is in use already"));
        }
        if !self.terms.tls {
            return self.wrong(Reply::new(502, "5.5.1", "TLS is not available"));
        }
        Step::StartTls(Reply::new(220, "2.0.0", "Ready to start TLS"))
    }

    /// Records that TLS is in use now. The session starts again: the server forgets all earlier commands (RFC
    /// 3207, 4.2).
    pub fn secured(&mut self) {
        self.secure = true;
        self.greeting = None;
        self.user = None;
        self.exchange = None;
        self.transaction = None;
    }

    fn authenticate(&mut self, mechanism: &str, initial: Option<&str>) -> Step {
        if !self.terms.users {
            return self.wrong(Reply::new(502, "5.5.1", "Authentication is not available"));
        }
        if !self.secure {
            return self.wrong(Reply::new(538, "5.7.11", "Encryption required: begin TLS first"));
        }
        if !self.greeting.as_ref().is_some_and(|greeting| greeting.extended) {
            return self.wrong(Reply::new(503, "5.5.1", "Send EHLO first"));
        }
        if self.user.is_some() || self.transaction.is_some() {
            return self.wrong(Reply::new(
                503,
                "5.5.1",
                "Not now: authenticated already, or within a message",
            ));
        }
        self.go_on(sasl::begin(mechanism, initial))
    }

    fn go_on(&mut self, next: SaslStep) -> Step {
        match next {
            SaslStep::Ask(exchange, reply) => {
                self.exchange = Some(exchange);
                Step::Reply(reply)
            }
            SaslStep::Done(login) => Step::LogIn(login),
            SaslStep::Failed(reply) => self.wrong(reply),
        }
    }

    /// Handles the result of [`Step::LogIn`].
    pub fn logged_in(&mut self, outcome: LoginOutcome) -> Step {
        let reply = match outcome {
            LoginOutcome::Identified(identity) => {
                self.user = Some(identity);
                return Step::Reply(Reply::new(235, "2.7.0", "Authentication successful"));
            }
            LoginOutcome::Wrong => sasl::wrong(),
            LoginOutcome::Locked { seconds: Some(seconds) } => {
                Reply::new(454, "4.7.0", format!("Too many failed logins; try again in {seconds} s"))
            }
            LoginOutcome::Locked { seconds: None } => {
                Reply::new(454, "4.7.0", "Too many failed logins; try again later")
            }
            LoginOutcome::Unavailable => Reply::new(454, "4.7.0", "Temporary authentication failure"),
        };
        self.failed += 1;
        if self.failed >= MOST_FAILED {
            return Step::Close(Reply::new(421, "4.7.0", "Too many failed logins"));
        }
        Step::Reply(reply)
    }

    fn mail(&mut self, mail: Mail) -> Step {
        if self.greeting.is_none() {
            return self.wrong(Reply::new(503, "5.5.1", "Send EHLO first"));
        }
        if self.transaction.is_some() {
            return self.wrong(Reply::new(503, "5.5.1", "A message is announced already"));
        }
        let Some(identity) = self.identity() else { return self.unknown_client() };
        let sender = mail.sender.as_ref();
        if !identity.may_send_as(sender) {
            return self.wrong(Self::sender_refused(shown_domain(sender)));
        }
        if sender.is_some_and(Address::needs_utf8) && !mail.utf8 {
            return self.wrong(Reply::new(553, "5.6.7", "Sender needs SMTPUTF8"));
        }
        if mail.size.is_some_and(|size| size > self.terms.max_size) {
            return self.idle(self.too_large());
        }
        self.transaction = Some(Transaction::new(mail, self.terms.max_recipients));
        Step::Sender
    }

    /// Refuses a client that is neither logged in nor in a network that may send.
    fn unknown_client(&mut self) -> Step {
        let reply = match (self.terms.users, self.secure) {
            (false, _) => Reply::new(550, "5.7.1", "Relaying denied"),
            (true, true) => Reply::new(530, "5.7.0", "Authentication required"),
            (true, false) => Reply::new(530, "5.7.0", "Begin TLS and authenticate first"),
        };
        self.wrong(reply)
    }

    /// The reply to a sender whose domain the client may not use.
    pub(crate) fn sender_refused(domain: &str) -> Reply {
        Reply::new(550, "5.7.1", format!("You may not send as {domain}"))
    }

    /// The reply to a recipient beyond the bound.
    pub(crate) fn too_many_recipients(most: usize) -> Reply {
        let text = format!("Too many recipients: at most {most} in one message; send the rest in another");
        Reply::new(452, "4.5.3", text)
    }

    /// The reply to a message that is too large.
    pub fn too_large(&self) -> Reply {
        Reply::new(552, "5.3.4", format!("Message too large: at most {} bytes", self.terms.max_size))
    }

    /// Handles the answer to [`Step::Sender`].
    pub fn sender_known(&mut self, most_recipients: Option<usize>) -> Step {
        if let (Some(most), Some(transaction)) = (most_recipients, &mut self.transaction) {
            transaction.bound_recipients(most);
        }
        Step::Reply(Reply::new(250, "2.1.0", "Ok"))
    }

    fn rcpt(&mut self, rcpt: Rcpt) -> Step {
        let Some(transaction) = &mut self.transaction else {
            return self.wrong(Reply::new(503, "5.5.1", "Send MAIL first"));
        };
        if rcpt.address.needs_utf8() && !transaction.utf8() {
            return self.wrong(Reply::new(553, "5.6.7", "Recipient needs SMTPUTF8"));
        }
        let ok = || Reply::new(250, "2.1.5", "Ok");
        match transaction.add(rcpt) {
            Added::Now => Step::Reply(ok()),
            Added::Before => self.surplus(ok()),
            Added::TooMany(most) => self.surplus(Self::too_many_recipients(most)),
        }
    }

    fn data(&mut self) -> Step {
        match &self.transaction {
            None => self.wrong(Reply::new(503, "5.5.1", "Send MAIL first")),
            Some(transaction) if transaction.recipients().is_empty() => {
                self.wrong(Reply::new(503, "5.5.1", "No valid recipients"))
            }
            Some(_) => Step::Admit,
        }
    }

    /// The answer to [`Step::Admit`] is yes. Send this reply, receive the text, and call [`Session::received`].
    pub fn admitted(&self) -> Reply {
        Reply::plain(354, ["End data with <CR><LF>.<CR><LF>"])
    }

    /// The answer to [`Step::Admit`] is no, with this reply.
    pub fn refused(&mut self, reply: Reply) -> Step {
        self.transaction = None;
        Step::Reply(reply)
    }

    /// Closes the session, because the client sent more before it knew whether its message is allowed: that
    /// text would be taken for commands, or the other way round.
    pub fn out_of_step(&mut self) -> Step {
        self.transaction = None;
        Step::Close(Reply::new(554, "5.5.0", "Protocol error: wait for the reply to DATA"))
    }

    /// The reply to a text that is refused.
    pub fn text_refused(&self, fault: TextFault) -> Reply {
        match fault {
            TextFault::Data(DataFault::TooLarge) => self.too_large(),
            TextFault::Data(DataFault::BareLineEnd) => {
                Reply::new(550, "5.5.2", "Message contains a bare CR or LF; lines end in CR LF")
            }
            TextFault::Data(DataFault::Nul) => Reply::new(550, "5.6.0", "Message contains a NUL"),
            TextFault::Header(HeaderFault::TooLarge) => Reply::new(552, "5.3.4", "Header too large"),
            TextFault::Header(HeaderFault::Loop) => {
                Reply::new(554, "5.4.6", "Too many hops: the message is in a loop")
            }
            TextFault::Header(HeaderFault::SeveralAuthors) => {
                Reply::new(550, "5.6.0", "Message has several From or Sender fields")
            }
            TextFault::Header(HeaderFault::ForeignAuthor) => {
                Reply::new(550, "5.7.1", "You may not send with this address in From or Sender")
            }
        }
    }

    /// Handles the reply to a message whose text was received.
    pub fn received(&mut self, reply: Reply) -> Step {
        self.transaction = None;
        (self.idle, self.surplus) = (0, 0);
        Step::Reply(reply)
    }

    /// Replies to a wrong command, and closes the session after too many.
    fn wrong(&mut self, reply: Reply) -> Step {
        self.bad += 1;
        if self.bad >= MOST_BAD {
            return Step::Close(Reply::new(421, "4.7.0", "Too many errors"));
        }
        Step::Reply(reply)
    }

    /// Replies to a recipient that is not added, and closes the session after too many.
    fn surplus(&mut self, reply: Reply) -> Step {
        self.surplus += 1;
        if self.surplus >= MOST_SURPLUS {
            return Step::Close(Reply::new(421, "4.7.0", "Too many recipients that add nothing"));
        }
        Step::Reply(reply)
    }

    /// Replies to a command that does not advance a message, and closes the session after too many.
    fn idle(&mut self, reply: Reply) -> Step {
        self.idle += 1;
        if self.idle >= MOST_IDLE {
            return Step::Close(Reply::new(421, "4.7.0", "Too many commands without a message"));
        }
        Step::Reply(reply)
    }
}
