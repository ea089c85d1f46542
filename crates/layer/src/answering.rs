//! The future of a call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body as HttpBody;
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tollgate_web::Statuses;

use crate::passing::{Passed, Refusal};
use crate::service::Body;

pin_project! {
    /// The future response: the service's, or a refusal.
    pub struct Answering<F, R: HttpBody, E> {
        #[pin]
        stage: Stage<F, R, E>,
    }
}

pin_project! {
    #[project = StageOf]
    enum Stage<F, R: HttpBody, E> {
        Refused { answer: Option<Refusal> },
        Passed { #[pin] future: F, passed: Option<Passed> },
        Later { future: Later<R, E> },
    }
}

type Later<R, E> = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, E>> + Send>>;

impl<F, R: HttpBody, E> Answering<F, R, E> {
    /// A refusal that is already known.
    pub(crate) fn refused(answer: Refusal) -> Self {
        Self { stage: Stage::Refused { answer: Some(answer) } }
    }

    /// A response of the service.
    pub(crate) fn passed(future: F, passed: Passed) -> Self {
        Self { stage: Stage::Passed { future, passed: Some(passed) } }
    }

    /// A response that needs a decision first.
    pub(crate) fn later(future: impl Future<Output = Result<Response<Body<R>>, E>> + Send + 'static) -> Self {
        Self { stage: Stage::Later { future: Box::pin(future) } }
    }
}

impl<F, R: HttpBody, E> Future for Answering<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<Body<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            StageOf::Refused { answer } => {
                let answer = answer.take().expect("an answer is awaited once");
                Poll::Ready(Ok(answer.map(|body| Either::Right(Full::new(body)))))
            }
            StageOf::Passed { future, passed } => {
                let answer = ready!(future.poll(context))?;
                let mut passed = passed.take().expect("an answer is awaited once");
                // The engine retries a refund that the store does not accept at once.
                drop(passed.taken.settle(Statuses::class_of(answer.status().as_u16())));
                Poll::Ready(Ok(passed.say(answer)))
            }
            StageOf::Later { future } => future.as_mut().poll(context),
        }
    }
}
