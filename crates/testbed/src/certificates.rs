//! Certificates for servers on loopback, signed by an authority of their own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::guard;

/// The paths of the files, which are deleted with this value.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    _directory: TempDir,
}

impl Certificates {
    /// Makes an authority, and a certificate for `localhost` and `127.0.0.1`.
    pub(crate) fn make() -> Self {
        let directory = TempDir::new_in(guard::home()).expect("a directory for certificates");
        let path = |name: &str| directory.path().join(name);
        let files = Self {
            authority: path("authority.pem"),
            certificate: path("certificate.pem"),
            key: path("key.pem"),
            _directory: directory,
        };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let authority = params.self_signed(&key).expect("an authority signs itself");
        let issuer = Issuer::new(params, key);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).expect("these are names");
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &issuer).expect("an authority signs");
        for (file, text) in [
            (&files.authority, authority.pem()),
            (&files.certificate, certificate.pem()),
            (&files.key, key.serialize_pem()),
        ] {
            std::fs::write(file, text).expect("the directory can be written to");
        }
        files
    }
}
