//! Policy requests of Postfix.

use tollgate_postfix::{Action, Malformed, Requests};

/// Requests end at the same bytes in whatever pieces they come, hold no line end, and an action that quotes one is a
/// single line.
pub fn policy_request(bytes: &[u8]) {
    let whole = read(bytes.chunks(bytes.len().max(1)));
    assert_eq!(whole, read(bytes.chunks(1)), "byte by byte");
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut said = Vec::new();
    Action::Defer { status: "4.7.1", text }.write(&mut said);
    assert!(said.starts_with(b"action=DEFER_IF_PERMIT 4.7.1 ") && said.ends_with(b"\n\n"));
    let line = &said[..said.len() - 2];
    assert!(line.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic()), "{:?}", said.escape_ascii());
}

/// What a connection makes of the pieces, up to the first mistake.
fn read<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Vec<Result<String, Malformed>> {
    let (mut requests, mut results) = (Requests::default(), Vec::new());
    for piece in pieces {
        requests.buffer().extend_from_slice(piece);
        while let Some(result) = requests.next() {
            if let Ok(request) = &result {
                let values = [request.sender, request.recipient, request.helo_name, request.instance];
                assert!(values.iter().all(|value| !value.contains(&b'\n') && !value.contains(&0)));
            }
            let is_over = result.is_err();
            results.push(result.map(|request| format!("{request:?}")));
            if is_over {
                return results;
            }
        }
    }
    results
}
