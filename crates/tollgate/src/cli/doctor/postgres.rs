//! Inspects a store in PostgreSQL.

use tollgate_postgres::Settings;
use tollgate_postgres::inspect::{self, Grade};
use tollgate_redis::inspect::Finding;
use tollgate_store::SystemClock;

pub(super) fn examine(settings: &Settings) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(inspect::inspect(settings, &SystemClock::new()));
    // Does not wait for a name lookup in progress.
    runtime.shutdown_background();
    Ok(found.into_iter().map(shown).collect())
}

fn shown(found: inspect::Finding) -> Finding {
    let inspect::Finding { grade, about, words, remedy } = found;
    let finding = match grade {
        Grade::Fine => Finding::fine(about, words),
        Grade::Note => Finding::note(about, words),
        Grade::Warning => Finding::warning(about, words),
        Grade::Problem => Finding::problem(about, words),
    };
    match remedy {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}
