//! Forwards a request to an upstream that speaks HTTP/2.

use super::limits::Admitted;
use super::note::Note;
use super::passing::Relayed;
use super::{Case, Passed};
use crate::exchange::{Client, Exchange, Failure};
use crate::forward::Scheme;
use crate::h1::decode::Decoder;
use crate::h1::write::Answer;
use crate::http2::shared_connection::SharedConnection;
use crate::http2::upstream::{H2Upstream, HasBody};

/// A connection that all requests to an address share.
struct ChosenConnection {
    connection: SharedConnection,
    place: usize,
    /// Whether other requests used it before.
    reused: bool,
}

impl Case<'_> {
    /// As with HTTP/1. An error is the response to send.
    pub(super) async fn forward_http2<C: Client>(
        &self,
        client: &mut C,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Result<Passed, Answer> {
        let mut shared = self.share().await?;
        loop {
            note.place = Some(shared.place);
            let failure = match self.try_http2(&mut shared, client, admitted, note).await {
                Ok(Relayed::Cut) => return Ok(Passed::Cut),
                Ok(_) => return Ok(Passed::Whole),
                Err(H2Refusal::Final(failure)) => return self.failed(failure, shared.place, note),
                Err(H2Refusal::Unseen(failure)) => failure,
            };
            if !shared.reused {
                return self.failed(failure, shared.place, note);
            }
            // Most likely the upstream closed an idle connection.
            shared = self.connect_shared(shared.place).await?;
        }
    }

    async fn try_http2<C: Client>(
        &self,
        shared: &mut ChosenConnection,
        client: &mut C,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Result<Relayed, H2Refusal> {
        let scheme = if self.pool().upstream.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let head =
            self.with_forwarded(shared.place, admitted, |forwarded| forwarded.request(self.request, scheme));
        let malformed = Failure::ClientMalformed("the head cannot be expressed in HTTP/2");
        let head = head.ok_or(H2Refusal::Final(malformed))?;
        let has_body = if self.request.body == Decoder::Empty { HasBody::No } else { HasBody::Yes };
        let mut server =
            H2Upstream::new(&mut shared.connection, head, has_body).map_err(H2Refusal::Unseen)?;
        let alarm = &self.downstream.alarm;
        let mut exchange = Exchange::new(client, &mut server, alarm, self.patience(), self.upload());
        match exchange.head(self.request).await {
            Ok(()) => Ok(self.relay(&mut exchange, admitted, note).await),
            Err(failure @ Failure::UpstreamGone { heard: false })
                if self.retries() && exchange.is_replayable(self.request) =>
            {
                Err(H2Refusal::Unseen(failure))
            }
            Err(failure @ Failure::UpstreamRefused) if self.retries() && exchange.is_untouched() => {
                Err(H2Refusal::Unseen(failure))
            }
            Err(failure) => Err(H2Refusal::Final(failure)),
        }
    }

    /// A connection to the next address. If that fails, others are tried.
    async fn share(&self) -> Result<ChosenConnection, Answer> {
        let pool = self.pool();
        let mut left = self.tries();
        loop {
            let place = pool.choose();
            let waiting = self
                .downstream
                .alarm
                .within(pool.upstream.settings.connect_timeout, pool.reuse_shared(place));
            if let Ok(Some(connection)) = waiting.await {
                return Ok(ChosenConnection { connection, place, reused: true });
            }
            left -= 1;
            match self.connect_shared(place).await {
                Err(_) if left > 0 => {}
                connected => return connected,
            }
        }
    }

    async fn connect_shared(&self, place: usize) -> Result<ChosenConnection, Answer> {
        let connected = self.pool().connect_shared(place, &self.downstream.alarm).await;
        let connected = connected.inspect_err(|bad| self.blame_connecting(bad));
        let connection = connected.map_err(|bad| self.unreachable(&bad))?;
        Ok(ChosenConnection { connection, place, reused: false })
    }
}

/// Why there is no response.
enum H2Refusal {
    /// The upstream did not act on the request, or repeating it does no harm.
    Unseen(Failure),
    /// The upstream may have acted on it, or the failure is not the upstream's.
    Final(Failure),
}
