//! The PROXY protocol, versions 1 and 2: a trusted proxy names the client of the connection.
//!
//! It reads the header to its last byte and not further, because SMTP or TLS follows. The code is our own,
//! since it is small and must not read ahead.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, with its CR LF.
const MOST_V1: usize = 107;
/// The longest header of version 2 that is read, after its first 16 bytes.
const MOST_V2: usize = 4_096;

/// Reads a header. Returns the client's address; `None` if the proxy made the connection for itself, as health
/// checks do.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a trusted proxy sent no PROXY header");
    // Every header is at least this long.
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        let mut fixed = [0; 4];
        stream.read_exact(&mut fixed).await?;
        let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if length > MOST_V2 {
            return Err(malformed());
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await?;
        return version_2(fixed[0], fixed[1], &rest).ok_or_else(malformed);
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= MOST_V1 || !line.starts_with(b"PROXY ") {
            return Err(malformed());
        }
        line.push(stream.read_u8().await?);
    }
    version_1(&line[..line.len() - 2]).ok_or_else(malformed)
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 56324 25`, without its CR LF. The outer `None` means that it is malformed.
fn version_1(line: &[u8]) -> Option<Option<IpAddr>> {
    let mut words = str::from_utf8(line).ok()?.split(' ');
    if words.next()? != "PROXY" {
        return None;
    }
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let (source, _, _, _) = (words.next()?, words.next()?, port(words.next()?)?, port(words.next()?)?);
    let source: IpAddr = source.parse().ok()?;
    let fits = match family {
        "TCP4" => source.is_ipv4(),
        "TCP6" => source.is_ipv6(),
        _ => false,
    };
    (fits && words.next().is_none()).then(|| Some(source.to_canonical()))
}

fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The version and command, the family, and what follows the length.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Option<Option<IpAddr>> {
    match command {
        // LOCAL: the proxy's own connection.
        0x20 => return Some(None),
        0x21 => {}
        _ => return None,
    }
    let source: IpAddr = match family {
        0x11 if rest.len() >= 12 => Ipv4Addr::from(<[u8; 4]>::try_from(&rest[..4]).ok()?).into(),
        0x21 if rest.len() >= 36 => Ipv6Addr::from(<[u8; 16]>::try_from(&rest[..16]).ok()?).into(),
        // Neither TCP over IPv4 nor over IPv6: there is no address to count by.
        _ => return None,
    };
    Some(Some(source.to_canonical()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read_all(bytes: &[u8]) -> (io::Result<Option<IpAddr>>, usize) {
        let mut rest = bytes;
        let read = read(&mut rest).await;
        (read, rest.len())
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn headers_are_read_to_their_last_byte() {
        let four = [192, 0, 2, 1, 192, 0, 2, 2, 1, 0, 0, 25];
        let six = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 20]].concat();
        let with_extra = [&four[..], &[4, 0, 1, 9]].concat();
        for (header, address) in [
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 25\r\n".to_vec(), Some("192.0.2.1")),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 25\r\n".to_vec(), Some("2001:db8::7")),
            (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 25\r\n".to_vec(), Some("192.0.2.1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ff 1 2 3\r\n".to_vec(), None),
            (v2(0x21, 0x11, &four), Some("192.0.2.1")),
            (v2(0x21, 0x11, &with_extra), Some("192.0.2.1")),
            (v2(0x21, 0x21, &six), Some("2001:db8::7")),
            (v2(0x20, 0, &[]), None),
        ] {
            let (read, left) = read_all(&[&header[..], b"EHLO x\r\n"].concat()).await;
            assert_eq!((read.unwrap(), left), (address.map(|text| text.parse().unwrap()), 8));
        }
    }

    #[tokio::test]
    async fn a_malformed_header_is_refused() {
        let endless = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        for bytes in [
            &b"EHLO client.example\r\n"[..],
            b"PROXY TCP4 2001:db8::7 192.0.2.2 1 25\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 99999 25\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 25 more\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 25\r\n",
            b"proxy tcp4 192.0.2.1 192.0.2.2 1 25\r\n",
            &endless,
            &v2(0x21, 0x11, &[1, 2, 3]),
            &v2(0x11, 0x11, &[0; 12]),
            &v2(0x21, 0x31, &[0; 216]),
            &v2(0x21, 0x11, &[0; 5_000]),
        ] {
            assert!(read_all(bytes).await.0.is_err());
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), known in any::<bool>()) {
            let bytes = if known { [&SIGNATURE[..], &bytes].concat() } else { [b"PROXY ", &bytes[..]].concat() };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read_all(&bytes));
        }
    }
}
