//! Requests whose body may be long. They are bounded by their progress: a steady client is not cut because its line is
//! slow, and a client that stops is.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;

use super::REQUEST_TIMEOUT;

/// How long a whole upload may take: as long as a message over SMTP.
const LONGEST_UPLOAD: Duration = Duration::from_secs(3_600);

/// When the last piece of a body came.
struct LastPiece(Mutex<Instant>);

/// A body that notes when its pieces come.
struct Watched<B> {
    body: B,
    last: Arc<LastPiece>,
}

impl LastPiece {
    /// When the request is given up, unless another piece comes before.
    fn deadline(&self, begun: Instant) -> Instant {
        (*self.0.lock() + REQUEST_TIMEOUT).min(begun + LONGEST_UPLOAD)
    }
}

/// Answers a request; `None` if its body, or the answer after it, made no progress for too long.
pub(super) async fn answer_upload<B>(
    router: Router,
    request: Request<B>,
) -> Option<Result<Response<Body>, Infallible>>
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let begun = Instant::now();
    let last = Arc::new(LastPiece(Mutex::new(begun)));
    let watched = Arc::clone(&last);
    let request = request.map(|body| Body::new(Watched { body, last: watched }));
    let mut answering = Box::pin(router.oneshot(request));
    loop {
        let deadline = last.deadline(begun);
        match timeout_at(deadline, &mut answering).await {
            Ok(answer) => return Some(answer),
            Err(_) if last.deadline(begun) == deadline => return None,
            Err(_) => {}
        }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Watched<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            *self.last.0.lock() = Instant::now();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of so many pieces, each a while after the one before.
    struct Paced {
        left: u32,
        every: Duration,
        next: Pin<Box<tokio::time::Sleep>>,
    }

    impl HttpBody for Paced {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            std::task::ready!(self.next.as_mut().poll(cx));
            self.left -= 1;
            self.next = Box::pin(tokio::time::sleep(self.every));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
        }
    }

    /// The status of an upload, and after how many seconds it is known. The answer takes a while after the body.
    async fn upload(left: u32, every: u64, then: u64) -> (Option<u16>, u64) {
        let take = move |body: Body| async move {
            axum::body::to_bytes(body, usize::MAX).await.unwrap();
            tokio::time::sleep(Duration::from_secs(then)).await;
        };
        let every = Duration::from_secs(every);
        let body = Paced { left, every, next: Box::pin(tokio::time::sleep(every)) };
        let request = Request::post("/api/v1/messages").body(body).unwrap();
        let begun = Instant::now();
        let answer = answer_upload(Router::new().fallback(take), request).await;
        (answer.map(|answer| answer.unwrap().status().as_u16()), begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_may_be_slow_but_not_stand_still() {
        assert_eq!(upload(20, 29, 29).await, (Some(200), 20 * 29 + 29));
        assert_eq!(upload(3, 31, 0).await, (None, 30), "no piece comes");
        assert_eq!(upload(3, 10, 31).await, (None, 60), "no answer comes");
        assert_eq!(upload(1_000, 20, 0).await, (None, 3_600), "it never ends");
    }
}
