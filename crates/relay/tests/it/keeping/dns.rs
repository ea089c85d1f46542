//! A small DNS server: it knows a few names, and answers over UDP.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::UdpSocket;

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) mx: Vec<(u16, &'static str)>,
    pub(crate) a: Vec<Ipv4Addr>,
    pub(crate) aaaa: Vec<Ipv6Addr>,
    /// The name that it stands for.
    pub(crate) cname: Option<&'static str>,
    /// Whether every question about it fails.
    pub(crate) fails: bool,
}

const A: u16 = 1;
const CNAME: u16 = 5;
const MX: u16 = 15;
const AAAA: u16 = 28;

/// Starts a server. It ends with the test's runtime.
pub(crate) async fn start(names: HashMap<&'static str, Known>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer(&buffer[..length], &names) {
                let _ = socket.send_to(&answer, peer).await;
            }
        }
    });
    address
}

fn answer(query: &[u8], names: &HashMap<&'static str, Known>) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    while *query.get(at)? > 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    let asked = u16::from_be_bytes(query.get(at + 1..at + 3)?.try_into().ok()?);
    let question = query.get(12..at + 5)?;
    let known = names.get(labels.join(".").as_str());
    let (mut kind, mut records) = (asked, Vec::<Vec<u8>>::new());
    if let Some(alias) = known.and_then(|known| known.cname) {
        kind = CNAME;
        records.push(labels_of(alias));
    } else if let Some(known) = known {
        match asked {
            A => records.extend(known.a.iter().map(|address| address.octets().to_vec())),
            AAAA => records.extend(known.aaaa.iter().map(|address| address.octets().to_vec())),
            MX => records.extend(known.mx.iter().map(|(preference, name)| mx(*preference, name))),
            _ => {}
        }
    }
    let code = match known {
        None => 3,
        Some(known) if known.fails => 2,
        Some(_) => 0,
    };
    let mut out = query[..2].to_vec();
    out.extend_from_slice(&[0x84, code, 0, 1, 0, u8::try_from(records.len()).ok()?, 0, 0, 0, 0]);
    out.extend_from_slice(question);
    for record in records {
        out.extend_from_slice(&[0xc0, 12]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        out.extend_from_slice(&u16::try_from(record.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&record);
    }
    Some(out)
}

fn mx(preference: u16, name: &str) -> Vec<u8> {
    [&preference.to_be_bytes()[..], &labels_of(name)].concat()
}

/// A name as records have it.
fn labels_of(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}
