//! The service: every request is decided before the inner service sees it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::{Either, Full};
use tollgate_engine::Admit;
use tollgate_web::Statuses;
use tower::Service;

use crate::answering::Answering;
use crate::body::Held;
use crate::layer::Setup;
use crate::passing::Known;

/// A service behind limits.
#[derive(Clone, Debug)]
pub struct Tollgate<S> {
    pub(crate) inner: S,
    pub(crate) setup: Arc<Setup>,
}

/// The body of a response: the service's, or that of a refusal.
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
        // The ready instance must be the one that is called; the clone replaces it.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let setup = Arc::clone(&self.setup);
        let (parts, body) = request.into_parts();
        let known = Known::of(&parts);
        match setup.admit(&parts) {
            Err(refusal) => Answering::refused(refusal),
            Ok(Admit::Ready(Some(admitted))) => match setup.conclude(admitted, &known) {
                Ok(passed) => Answering::passed(inner.call(Request::from_parts(parts, body)), passed),
                Err(refusal) => Answering::refused(refusal),
            },
            Ok(later) => Answering::later(async move {
                let mut passed = match setup.conclude(later.await, &known) {
                    Ok(passed) => passed,
                    Err(refusal) => return Ok(refusal.map(|body| Either::Right(Full::new(body)))),
                };
                let answer = inner.call(Request::from_parts(parts, body)).await?;
                // The engine retries a refund that the store does not accept now.
                let _ = passed.taken.settle(Statuses::class_of(answer.status().as_u16())).await;
                Ok(passed.say(answer))
            }),
        }
    }
}
