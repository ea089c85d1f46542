//! The certificate with which tollgate shows a server who it is.

use tollgate_remote::Identity;

use super::gateway::pem;
use super::problem::Findings;
use super::tree::Path;

/// The certificate and the key of two settings that belong together; `None` if neither is written, or after an error.
pub(super) fn mean(
    [(certificate, written), (key, secret)]: [(&str, &Option<String>); 2],
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Identity> {
    let (written, secret) = match (written, secret) {
        (Some(written), Some(secret)) => (written, secret),
        (None, None) => return None,
        (Some(_), None) => {
            findings.key(&path.key(certificate), format!("where is its key? Add `{key}`"));
            return None;
        }
        (None, Some(_)) => {
            findings.key(&path.key(key), format!("where is its certificate? Add `{certificate}`"));
            return None;
        }
    };
    let at = path.key(certificate);
    let certificates = pem(written, "-----BEGIN CERTIFICATE-----", &at, findings);
    let secret = pem(secret, "PRIVATE KEY-----", &path.key(key), findings);
    Identity::new(certificates?, secret?).map_err(|reason| findings.value(&at, reason)).ok()
}
