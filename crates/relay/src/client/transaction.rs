//! One transaction: MAIL, RCPT, DATA, and its result.

use std::hash::Hasher;
use std::io::Read;

use siphasher::sip::SipHasher13;
use tokio::task::spawn_blocking;

use super::Timeouts;
use super::connection::{Connection, Silence};
use super::lines::{is_plain, mail_line, rcpt_line};
use super::reply::Reply;
use super::stuffing::Stuffing;
use crate::message::{Envelope, Recipient};
use crate::queue::Text;
use crate::replies::{ReplyStage, Rest, Verdict};

/// The last stage that a transaction reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// The server did not answer MAIL.
    BeforeMail,
    /// The server answered MAIL or RCPT, and got no text.
    BeforeData,
    /// The server got a part of the text, and not the final dot. It has no message.
    BeforeDot,
    /// The server got the final dot, and answered.
    Answered,
    /// The server got the final dot, and did not answer. It may have taken the message.
    Unknown,
}

/// The result for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server accepted the message.
    Sent(Reason),
    /// The server refused for now.
    Temporary(Reason),
    /// The server refused for good.
    Permanent(Reason),
    /// The server accepts this recipient only in another transaction.
    Another,
}

/// The explanation of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The enhanced status code.
    pub status: String,
    /// The server's reply, or the relay's own words.
    pub text: String,
    /// Whether the text is from a server.
    pub remote: bool,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The last stage that it reached.
    pub progress: Progress,
    /// The result for each recipient, in the given order.
    pub answers: Vec<Answer>,
    /// The server's refusal of the account, if there was one. Recipients without an answer of their own are
    /// then tried elsewhere.
    pub refused: Option<AccountRefusal>,
    /// The reply that asks to send less to this recipient domain, if there is one.
    pub slows_domain: Option<String>,
    /// Whether the server reports itself what became of the recipients: it offers DSN.
    pub reports: bool,
}

/// A transaction whose server waits for the text.
pub(crate) struct Announced {
    answers: Vec<Option<Answer>>,
    notes: Notes,
}

/// A refusal that is about the account and not about a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRefusal {
    /// Why the account rests; `None` if it does not take this message alone.
    pub rest: Option<Rest>,
    /// The reply.
    pub reason: Reason,
}

/// The number of bytes of a text to read at once.
const PIECE: usize = 64 << 10;

impl Connection {
    /// Delivers a message to some of its recipients.
    pub async fn transact(
        &mut self,
        envelope: &Envelope,
        recipients: &[&Recipient],
        text: Text,
        times: &Timeouts,
    ) -> Delivery {
        match self.announce_all(envelope, recipients, text.size, times).await {
            Ok(announced) => self.complete(announced, text, times).await,
            Err(delivery) => delivery,
        }
    }

    /// The first half of [`Connection::transact`]: everything up to the text, which the server waits for.
    pub(crate) async fn announce_all(
        &mut self,
        envelope: &Envelope,
        recipients: &[&Recipient],
        size: u64,
        times: &Timeouts,
    ) -> Result<Announced, Delivery> {
        self.used += 1;
        if let Some(reason) = self.unfit(envelope, size) {
            let answers = vec![Answer::Permanent(reason); recipients.len()];
            return Err(Delivery::unsent(Progress::BeforeMail, answers));
        }
        if recipients.iter().any(|recipient| !is_plain(&recipient.address)) {
            let answer = |recipient: &&Recipient| match is_plain(&recipient.address) {
                true => Answer::Another,
                false => Answer::Permanent(Reason::own("5.1.3", "the address is malformed".to_owned())),
            };
            let answers = recipients.iter().map(answer).collect();
            return Err(Delivery::unsent(Progress::BeforeMail, answers));
        }
        let reports = self.extensions.dsn;
        let mut notes = Notes { recipients: recipients.len(), refused: None, slows_domain: None, reports };
        let answers = self.announce(envelope, recipients, size, times, &mut notes).await?;
        let accepted = answers.iter().filter(|answer| answer.is_none()).count();
        if accepted == 0 {
            // MAIL was accepted, so RSET must follow before the next transaction.
            self.reusable = self.reusable && self.reset(times).await;
            return Err(notes.end(Progress::BeforeData, answers, Answer::Another));
        }
        match self.command("DATA", times.data_start).await {
            Ok(reply) if reply.code == 354 => Ok(Announced { answers, notes }),
            Ok(reply) => {
                // A server that answers 2xx to DATA does not wait for a text: its replies belong to other
                // commands.
                let in_step = reply.code >= 400;
                self.reusable &= in_step && self.reset(times).await;
                let answer = notes.refusal(self.judge(ReplyStage::Data, &reply), &reply);
                Err(notes.end(Progress::BeforeData, answers, answer))
            }
            Err(silence) => Err(self.broken(&notes, Progress::BeforeData, answers, &silence)),
        }
    }

    /// The second half of [`Connection::transact`]: the text.
    pub(crate) async fn complete(&mut self, announced: Announced, text: Text, times: &Timeouts) -> Delivery {
        let Announced { answers, mut notes } = announced;
        if let Err(stopped) = self.send_text(text, times).await {
            let answer = match stopped {
                Stopped::Silence(silence) => self.last_words(&mut notes, &silence, times).await,
                Stopped::Text(reason) => Answer::Temporary(Reason::own("4.3.0", reason)),
            };
            self.reusable = false;
            return notes.end(Progress::BeforeDot, answers, answer);
        }
        // A reply before the final dot is not the answer to it.
        if let Some(silence) = self.interruption() {
            let answer = self.last_words(&mut notes, &silence, times).await;
            self.reusable = false;
            return notes.end(Progress::BeforeDot, answers, answer);
        }
        self.finish(answers, times, &mut notes).await
    }

    /// Sends the final dot, and reads the answer to it.
    async fn finish(
        &mut self,
        answers: Vec<Option<Answer>>,
        times: &Timeouts,
        notes: &mut Notes,
    ) -> Delivery {
        if let Err(silence) = self.send(b".\r\n", times.data_piece).await {
            return self.broken(notes, Progress::Unknown, answers, &silence);
        }
        match self.reply(times.data_end).await {
            Ok(reply) if reply.is_ok() => {
                let reason = Reason { status: reply.status(), text: reply.to_string(), remote: true };
                notes.end(Progress::Answered, answers, Answer::Sent(reason))
            }
            Ok(reply) if reply.code >= 400 => {
                let answer = notes.refusal(self.judge(ReplyStage::Text, &reply), &reply);
                self.reusable &= reply.code != 421;
                notes.end(Progress::Answered, answers, answer)
            }
            Ok(reply) => {
                self.reusable = false;
                let answer = notes.refusal(self.judge(ReplyStage::Text, &reply), &reply);
                notes.end(Progress::Unknown, answers, answer)
            }
            Err(silence) => self.broken(notes, Progress::Unknown, answers, &silence),
        }
    }

    /// Sends RSET. Returns whether the next transaction begins with a clean state.
    async fn reset(&mut self, times: &Timeouts) -> bool {
        self.command("RSET", times.command).await.is_ok_and(|reply| reply.is_ok())
    }

    /// Reads the server's reply to a text that was not sent completely.
    async fn last_words(&mut self, notes: &mut Notes, silence: &Silence, times: &Timeouts) -> Answer {
        match self.reply(times.last_words).await {
            Ok(reply) if reply.code >= 400 => notes.refusal(self.judge(ReplyStage::Text, &reply), &reply),
            _ => Answer::Temporary(Reason::own("4.4.2", silence.to_string())),
        }
    }

    /// The reason why the server cannot take the message at all.
    fn unfit(&self, envelope: &Envelope, size: u64) -> Option<Reason> {
        let extensions = &self.extensions;
        let own = |status, text: &str| Some(Reason::own(status, text.to_owned()));
        if !is_plain(envelope.sender.as_deref().unwrap_or_default()) {
            return own("5.1.7", "the sender's address is malformed");
        }
        if envelope.needs.utf8 && !extensions.utf8 {
            return own("5.6.7", "the next hop does not support internationalized addresses (SMTPUTF8)");
        }
        match extensions.size {
            Some(most) if most > 0 && size > most => {
                own("5.3.4", &format!("the message has {size} bytes, and the next hop takes {most}"))
            }
            _ => None,
        }
    }

    /// Sends MAIL and RCPT. Returns `None` for each recipient that the server accepted.
    async fn announce(
        &mut self,
        envelope: &Envelope,
        recipients: &[&Recipient],
        size: u64,
        times: &Timeouts,
        notes: &mut Notes,
    ) -> Result<Vec<Option<Answer>>, Delivery> {
        let mail = mail_line(envelope, size, &self.extensions);
        let lines: Vec<String> =
            recipients.iter().map(|recipient| rcpt_line(recipient, self.extensions.dsn)).collect();
        let pipelining = self.extensions.pipelining;
        let first = if pipelining { format!("{mail}{}", lines.concat()) } else { mail };
        let mut answers: Vec<Option<Answer>> = vec![None; recipients.len()];
        let early = Progress::BeforeMail;
        if let Some(silence) = self.interruption() {
            return Err(self.broken(notes, early, answers, &silence));
        }
        if let Err(silence) = self.send(first.as_bytes(), times.command).await {
            return Err(self.broken(notes, early, answers, &silence));
        }
        let mail = match self.reply(times.command).await {
            Ok(reply) => reply,
            Err(silence) => return Err(self.broken(notes, early, answers, &silence)),
        };
        if !mail.is_ok() {
            // The replies to the pipelined commands follow, and are not read.
            self.reusable = false;
            if mail.code == 421 && self.is_reused() {
                // The server closes a connection that was open for too long, or that carried too many messages.
                let reason = Reason { remote: true, ..Reason::own("4.4.2", mail.to_string()) };
                return Err(notes.end(early, answers, Answer::Temporary(reason)));
            }
            let answer = notes.refusal(self.judge(ReplyStage::Mail, &mail), &mail);
            return Err(notes.end(Progress::BeforeData, answers, answer));
        }
        for (index, line) in lines.iter().enumerate() {
            if !pipelining && let Err(silence) = self.send(line.as_bytes(), times.command).await {
                return Err(self.broken(notes, Progress::BeforeData, answers, &silence));
            }
            let reply = match self.reply(times.command).await {
                Ok(reply) => reply,
                Err(silence) => return Err(self.broken(notes, Progress::BeforeData, answers, &silence)),
            };
            let too_many = reply.is_too_many_recipients();
            let another = too_many && answers[..index].iter().any(Option::is_none);
            answers[index] = match reply.is_ok() {
                true => None,
                false if another => Some(Answer::Another),
                false if too_many && reply.is_permanent() => {
                    let reason = Reason::own("4.5.3", reply.to_string());
                    Some(Answer::Temporary(Reason { remote: true, ..reason }))
                }
                false => Some(notes.refusal(self.judge(ReplyStage::Recipient, &reply), &reply)),
            };
            // A server that asks for a text now answers another command.
            self.reusable &= reply.code / 100 != 3;
        }
        Ok(answers)
    }

    /// Sends a text without its final dot. The text is compared with its checksum, so that a damaged text is
    /// not completed.
    async fn send_text(&mut self, text: Text, times: &Timeouts) -> Result<(), Stopped> {
        let (mut stuffing, mut hasher, mut size) = (Stuffing::new(), SipHasher13::new(), 0_u64);
        let mut out = Vec::with_capacity(PIECE * 2);
        let mut source = text.bytes;
        let mut piece = vec![0; PIECE];
        loop {
            let reading = spawn_blocking(move || {
                let read = read_full(&mut *source, &mut piece);
                (source, piece, read)
            });
            let (back, buffer, read) = reading.await.map_err(|error| Stopped::Text(error.to_string()))?;
            (source, piece) = (back, buffer);
            let read = read.map_err(|error| Stopped::Text(format!("the text cannot be read: {error}")))?;
            hasher.write(&piece[..read]);
            size += read as u64;
            stuffing.push(&piece[..read], &mut out);
            let last = read < piece.len();
            if last {
                if size != text.size || hasher.finish() != text.checksum {
                    return Err(Stopped::Text("the text is damaged".to_owned()));
                }
                stuffing.end(&mut out);
            }
            self.send(&out, times.data_piece).await.map_err(Stopped::Silence)?;
            out.clear();
            if last {
                return Ok(());
            }
        }
    }

    /// The result if the server stops answering.
    fn broken(
        &mut self,
        notes: &Notes,
        progress: Progress,
        answers: Vec<Option<Answer>>,
        silence: &Silence,
    ) -> Delivery {
        self.reusable = false;
        let reason = Reason::own("4.4.2", silence.to_string());
        notes.end(progress, answers, Answer::Temporary(reason))
    }
}

/// The reason why a text was not sent completely.
enum Stopped {
    Silence(Silence),
    Text(String),
}

/// Facts that are collected during the transaction.
struct Notes {
    recipients: usize,
    refused: Option<AccountRefusal>,
    slows_domain: Option<String>,
    reports: bool,
}

impl Notes {
    /// The answer for a reply that does not accept the message.
    fn refusal(&mut self, verdict: Verdict, reply: &Reply) -> Answer {
        let status = match reply.code / 100 {
            4 | 5 => reply.status(),
            // It is no refusal: the server is out of step.
            _ => "4.5.0".to_owned(),
        };
        let mut reason = Reason { status, text: reply.to_string(), remote: true };
        match verdict {
            Verdict::Bounce => {
                reason.status.replace_range(..1, "5");
                return Answer::Permanent(reason);
            }
            Verdict::Retry => {}
            Verdict::SlowDomain => self.slows_domain = self.slows_domain.take().or(Some(reason.text.clone())),
            Verdict::Next => self.refused_by(None, &reason),
            Verdict::Rest(rest) => self.refused_by(Some(rest), &reason),
        }
        Answer::Temporary(reason)
    }

    /// Notes that the account is refused. The worst reason counts.
    fn refused_by(&mut self, rest: Option<Rest>, reason: &Reason) {
        if self.refused.as_ref().is_none_or(|known| known.rest < rest) {
            self.refused = Some(AccountRefusal { rest, reason: reason.clone() });
        }
    }

    /// Makes the result. Recipients without an answer of their own get this one.
    fn end(&self, progress: Progress, answers: Vec<Option<Answer>>, rest: Answer) -> Delivery {
        debug_assert_eq!(answers.len(), self.recipients);
        let answers = answers.into_iter().map(|answer| answer.unwrap_or_else(|| rest.clone())).collect();
        let (refused, slows_domain) = (self.refused.clone(), self.slows_domain.clone());
        Delivery { progress, answers, refused, slows_domain, reports: self.reports }
    }
}

impl Delivery {
    /// The server's refusal of the account, if no recipient has an outcome of its own: all of them may be tried
    /// through another account.
    pub(crate) fn refusal_of_all(&self) -> Option<&AccountRefusal> {
        let none_settled = self.answers.iter().all(|answer| matches!(answer, Answer::Temporary(_)));
        self.refused.as_ref().filter(|_| none_settled && self.progress != Progress::Unknown)
    }

    /// A delivery that was not refused, or of which no server knows.
    pub(crate) fn unsent(progress: Progress, answers: Vec<Answer>) -> Self {
        Self { progress, answers, refused: None, slows_domain: None, reports: false }
    }
}

impl Reason {
    /// A reason in the relay's own words.
    pub(crate) fn own(status: &str, text: String) -> Self {
        Self { status: status.to_owned(), text, remote: false }
    }
}

/// Reads until the buffer is full or the text ends.
fn read_full(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
