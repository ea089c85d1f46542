//! Clients that speak HTTP/2.

use bytes::BytesMut;

use crate::connection::Visit;
use crate::stream::Stream;

/// Serves a connection in HTTP/2, of which some bytes may have been read already.
pub(crate) async fn serve(visit: Visit, stream: Stream, read: BytesMut) {
    drop((visit, stream, read));
}
