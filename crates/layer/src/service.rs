//! The service: every request is decided before the service inside sees it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::{Either, Full};
use tower::Service;

use crate::answering::Answering;
use crate::body::Held;
use crate::layer::Terms;

/// A service behind limits.
#[derive(Clone, Debug)]
pub struct Tollgate<S> {
    pub(crate) inner: S,
    pub(crate) terms: Arc<Terms>,
}

/// The body of an answer: the service's, or that of a refusal.
pub(crate) type Body<R> = Either<Held<R>, Full<Bytes>>;

impl<S, B, R> Service<Request<B>> for Tollgate<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: HttpBody + Send + 'static,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Answering<S::Future, R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is the one to be called; the clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let terms = Arc::clone(&self.terms);
        let (parts, body) = request.into_parts();
        if !terms.engine.answers_at_once() {
            return Answering::later(async move {
                let passed = match terms.pass(&parts).await {
                    Ok(passed) => passed,
                    Err(refusal) => return Ok(refusal.map(|body| Either::Right(Full::new(body)))),
                };
                let answer = inner.call(Request::from_parts(parts, body)).await?;
                if let Some(pending) = passed.pending {
                    // What the store does not take back now is offered again.
                    let _ = terms.engine.answered(pending, answer.status().as_u16()).await;
                }
                Ok(passed.headers.say(answer, passed.lease))
            });
        }
        match at_once(terms.pass(&parts)) {
            Ok(passed) => Answering::passed(inner.call(Request::from_parts(parts, body)), passed, terms),
            Err(refusal) => Answering::refused(refusal),
        }
    }
}

/// The value of a future that waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the engine says that it answers at once"),
    }
}
