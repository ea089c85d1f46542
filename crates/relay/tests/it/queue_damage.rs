//! Damage: broken rows, missing texts, another format, a database that cannot be read, and a disk that fails.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::{self, forgetful::Forgetful};
use crate::keeping::{clock, envelope, open, options, read_text, submit, text_of};
use tollgate_core::Clock;
use tollgate_relay::message::{IntakeError, MessageId};
use tollgate_relay::queue::disk::{Content, Directory, Disk};
use tollgate_relay::queue::{OpenError, Queue};

async fn filled(disk: &Forgetful) {
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock());
    for (id, domain) in [(1, "one.example"), (2, "two.example"), (3, "three.example")] {
        let recipient = format!("someone-{id}@{domain}");
        submit(&queue, envelope(id, &[&recipient]), &text_of(id, 40_000)).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_message_goes_to_quarantine_and_the_others_stay() {
    let disk = Forgetful::new();
    filled(&disk).await;
    disk.spoil(b"someone-2@");
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    let damaged: Vec<_> = opened.damaged.iter().map(|damage| (damage.table, damage.message.0)).collect();
    assert_eq!(damaged, [("messages", 2), ("items", 2)]);
    assert_eq!((queue.len(), opened.waiting.len()), (2, 2));
    assert_eq!(read_text(&queue, 3), text_of(3, 40_000));
    assert_eq!(disk.quarantined(), [format!("{:032x}", 2)], "its text is not lost");
    drop((queue, opened));
    let (_queue, opened) = open(Arc::new(disk), &clock());
    assert_eq!(opened.damaged, [], "it is reported once");
}

#[tokio::test]
async fn a_damaged_item_of_a_damaged_message_ends() {
    let disk = Forgetful::new();
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    submit(&queue, envelope(1, &["a@only-here.example"]), b"x\r\n").await.unwrap();
    drop((queue, opened));
    // The domain is in the envelope and in the item. Both are broken, so that both are found.
    disk.spoil(b"only-here.example");
    let (queue, opened) = open(Arc::new(disk), &clock());
    assert_eq!(opened.damaged.len(), 2);
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_message_without_its_text_goes_to_quarantine() {
    let disk = Forgetful::new();
    filled(&disk).await;
    let name = disk.kept()[0].clone();
    disk.remove(&name);
    let (queue, opened) = open(Arc::new(disk), &clock());
    assert!(opened.damaged.iter().any(|damage| damage.table == "messages"));
    assert_eq!(queue.len(), 2);
}

#[tokio::test]
async fn another_format_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(Directory::open(directory.path()).unwrap());
    let path = directory.path().join("queue.redb");
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    {
        let database = redb::Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(table).unwrap().insert("format", 99).unwrap();
        transaction.commit().unwrap();
    }
    let disk = Arc::new(Directory::open(directory.path()).unwrap());
    let opened = Queue::open(disk, clock() as Arc<dyn Clock>, options());
    assert!(matches!(opened, Err(OpenError::Format { found: 99 })), "{opened:?}");
}

#[tokio::test]
async fn a_database_that_cannot_be_read_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Directory::open(directory.path()).unwrap());
    let (queue, _) = open(disk, &clock());
    submit(&queue, envelope(7, &["a@one.example"]), &text_of(7, 40_000)).await.unwrap();
    drop(queue);
    let path = directory.path().join("queue.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9..].fill(7);
    std::fs::write(&path, &bytes).unwrap();
    let disk = Arc::new(Directory::open(directory.path()).unwrap());
    let (queue, opened) = open(disk, &clock());
    let aside = opened.set_aside.unwrap();
    assert_eq!(aside.lost, None, "it does not say how many it had");
    assert_eq!(std::fs::read(aside.to.join("queue.redb")).unwrap(), bytes, "it is kept as it was found");
    let text = directory.path().join("quarantine").join(format!("{:032x}", 7));
    assert_eq!(std::fs::read(text).unwrap(), text_of(7, 40_000), "it may be all that is left");
    submit(&queue, envelope(1, &["a@one.example"]), &text_of(1, 40_000)).await.unwrap();
}

/// A queue in a directory, with small texts and large ones, messages that were sent, and attempts. Answers the bytes of
/// its database.
async fn well_filled(directory: &std::path::Path) -> Vec<u8> {
    let (queue, _opened) = open(Arc::new(Directory::open(directory).unwrap()), &clock());
    for id in 1..=MESSAGES {
        let size = size_of(id);
        let recipients = [format!("a{id}@one.example"), format!("b{id}@two.example")];
        let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
        submit(&queue, envelope(id, &recipients), &text_of(id, size)).await.unwrap();
        if id % 5 == 0 {
            queue.cancel(MessageId(id)).await.unwrap();
        }
    }
    drop(queue);
    std::fs::read(directory.join("queue.redb")).unwrap()
}

const MESSAGES: u128 = 300;

fn size_of(id: u128) -> usize {
    if id.is_multiple_of(7) { 40_000 } else { 300 }
}

/// Opens a queue with this database, and answers how many of its 240 messages still wait, complete.
fn left_of(directory: &std::path::Path, database: &[u8], what: &str) -> usize {
    let texts = directory.join("texts");
    for id in (7..=MESSAGES).step_by(7).filter(|id| id % 5 != 0) {
        std::fs::write(texts.join(format!("{id:032x}")), text_of(id, 40_000)).unwrap();
    }
    std::fs::write(directory.join("queue.redb"), database).unwrap();
    let disk = Arc::new(Directory::open(directory).unwrap());
    let opened = Queue::open(disk, clock() as Arc<dyn Clock>, options());
    let (queue, opened) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    let waiting: std::collections::BTreeSet<u128> =
        opened.waiting.iter().map(|item| item.key.message.0).collect();
    for id in &waiting {
        assert!(id % 5 != 0, "{what}: message {id} was cancelled");
        assert_eq!(read_text(&queue, *id), text_of(*id, size_of(*id)), "{what}: {id}");
        let items = opened.waiting.iter().filter(|item| item.key.message.0 == *id).count();
        assert_eq!(items, 2, "{what}: message {id} has all of its recipients");
    }
    assert_eq!(queue.len(), waiting.len() as u64, "{what}");
    waiting.len()
}

#[tokio::test]
async fn a_damaged_database_opens_with_every_message_that_can_be_read() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("queue");
    let sound = well_filled(&directory).await;
    let all = left_of(&directory, &sound, "sound");
    assert_eq!(all, 240);
    let mut luck = fastrand::Rng::with_seed(22);
    let pages = sound.len() / 4_096;
    let mut kept = Vec::new();
    for trial in 0..60 {
        let (mut damaged, what) = (sound.clone(), format!("trial {trial}"));
        match trial % 4 {
            // One bit.
            0 => damaged[luck.usize(..sound.len())] ^= 1 << luck.u32(..8),
            // A page of zeroes, the first ones among them.
            1 => {
                let page = if trial < 12 { trial / 4 } else { luck.usize(..pages) };
                damaged[page * 4_096..(page + 1) * 4_096].fill(0);
            }
            // Nonsense in one sector.
            2 => {
                let at = luck.usize(..sound.len() / 512) * 512;
                luck.fill(&mut damaged[at..at + 512]);
            }
            // The end is missing.
            _ => damaged.truncate(luck.usize(sound.len() / 2..sound.len())),
        }
        let left = left_of(&directory, &damaged, &what);
        if trial % 4 != 3 {
            kept.push((left, trial));
        }
    }
    kept.sort_unstable();
    assert!(kept[0].0 >= 200, "one damaged page costs what is in it: {kept:?}");
}

#[tokio::test]
async fn a_directory_is_used_by_one_queue_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Directory::open(directory.path()).unwrap();
    let second = Directory::open(directory.path());
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    drop(disk);
    Directory::open(directory.path()).unwrap();
}

#[tokio::test]
async fn a_disk_that_fails_refuses_messages_and_loses_none() {
    let disk = Forgetful::new();
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    submit(&queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    disk.fail_after(1);
    for id in 2..5 {
        let refused = submit(&queue, envelope(id, &["a@one.example"]), b"x\r\n").await;
        assert!(matches!(refused, Err(IntakeError::Failed { .. })), "{refused:?}");
    }
    drop((queue, opened));
    let (queue, _opened) = open(Arc::new(disk.crash(&mut || true)), &clock());
    assert!(queue.show(MessageId(1)).unwrap().is_some());
    assert_eq!(queue.len(), 1);
}

#[tokio::test]
async fn a_damaged_item_is_made_anew_from_its_envelope() {
    let disk = Forgetful::new();
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    submit(&queue, envelope(1, &["a@one.example", "b@two.example"]), b"x\r\n").await.unwrap();
    drop((queue, opened));
    // In the item the domain comes before one recipient, the second of the envelope.
    disk.spoil(b"two.example\x01\0\0\0\x01\0\0\0");
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    let damaged: Vec<_> = opened.damaged.iter().map(|damage| (damage.table, damage.item)).collect();
    assert_eq!(damaged, [("items", 1)]);
    assert_eq!(queue.len(), 1);
    let mut domains: Vec<_> = opened.waiting.iter().map(|item| &*item.domain).collect();
    domains.sort_unstable();
    assert_eq!(domains, ["one.example", "two.example"], "no recipient is forgotten");
    assert_eq!(opened.possible_duplicates.len(), 1);
    let shown = queue.show(MessageId(1)).unwrap().unwrap();
    assert!(shown.items[1].1.possible_duplicate && shown.items[1].1.waiting() == [1]);
}

#[tokio::test]
async fn texts_outlive_a_database_that_is_lost() {
    let disk = Forgetful::new();
    filled(&disk).await;
    let names = disk.kept();
    disk.lose_database();
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    assert_eq!((queue.len(), opened.waiting.len()), (0, 0));
    assert_eq!(disk.quarantined(), names, "they may be all that is left of a message");
    assert!(disk.kept().is_empty());
}

#[tokio::test]
async fn a_queue_goes_on_when_its_disk_works_again() {
    let disk = Forgetful::new();
    let (queue, mut opened) = open(Arc::new(disk.clone()), &clock());
    submit(&queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    for (round, operations) in (1..40).enumerate() {
        let id = 100 + round as u128;
        disk.fail_after(operations);
        let refused = submit(&queue, envelope(id, &["a@one.example"]), &text_of(id, 40_000)).await;
        disk.mend();
        let next = 1_000 + round as u128;
        submit(&queue, envelope(next, &["a@one.example"]), b"x\r\n").await.unwrap();
        let there = queue.show(MessageId(id)).unwrap().is_some();
        assert_eq!(there, refused.is_ok(), "what was refused is not there: round {round}");
    }
    assert!(queue.show(MessageId(1)).unwrap().is_some());
    let mut told = 0;
    while opened.arrived.try_recv().is_ok() {
        told += 1;
    }
    assert_eq!(told, queue.len(), "the scheduler knows every message");
    drop((queue, opened));
    let (queue, opened) = open(Arc::new(disk.clone()), &clock());
    assert_eq!((opened.waiting.len() as u64, opened.damaged.len()), (told, 0));
    assert_eq!(queue.len(), told);
    assert!(disk.quarantined().is_empty(), "the texts of refused messages are gone");
}

#[tokio::test]
async fn a_queue_that_is_only_read_goes_on_when_its_disk_works_again() {
    let disk = Forgetful::new();
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock());
    submit(&queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    disk.fail_after(1);
    submit(&queue, envelope(2, &["a@one.example"]), b"x\r\n").await.unwrap_err();
    assert!(queue.show(MessageId(1)).is_err(), "the disk fails");
    disk.mend();
    let reading = async {
        while queue.show(MessageId(1)).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(tollgate_testbed::PATIENCE, reading)
        .await
        .expect("it opens without another message");
    assert!(queue.show(MessageId(2)).unwrap().is_none(), "it was refused");
}

#[tokio::test]
async fn a_disk_that_has_room_again_takes_mail_again() {
    let disk = Forgetful::new();
    let (queue, _opened) = keeping::open_with(
        Arc::new(disk.clone()),
        &clock(),
        tollgate_relay::queue::QueueOptions { min_free: 1 << 30, ..options() },
    );
    submit(&queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    disk.set_free(1 << 20);
    let refused = submit(&queue, envelope(2, &["a@one.example"]), b"x\r\n").await;
    assert_eq!(refused.unwrap_err(), IntakeError::Full);
    disk.set_free(2 << 30);
    submit(&queue, envelope(2, &["a@one.example"]), b"x\r\n").await.unwrap();
}

#[test]
fn a_directory_is_inspected_without_a_change() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("queue");
    std::fs::create_dir(&root).unwrap();
    assert_eq!(Directory::inspect(&root).unwrap(), Content::Nothing);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::write(root.join("letter"), "mine").unwrap();
    assert!(Directory::inspect(&root).unwrap_err().to_string().contains("is not empty"));
    std::fs::remove_file(root.join("letter")).unwrap();
    drop(open(Arc::new(Directory::open(&root).unwrap()), &clock()));
    assert_eq!(Directory::inspect(&root).unwrap(), Content::Queue);
    std::fs::write(root.join("queue.redb"), "").unwrap();
    assert_eq!(Directory::inspect(&root).unwrap(), Content::QueueWithoutDatabase);
    std::fs::remove_file(root.join("queue.redb")).unwrap();
    assert_eq!(Directory::inspect(&root).unwrap(), Content::QueueWithoutDatabase);
    std::fs::write(root.join("queue.redb"), "precious").unwrap();
    assert!(Directory::inspect(&root).unwrap_err().to_string().contains("is not the database of a queue"));
    std::fs::write(root.join("lock"), "precious").unwrap();
    assert!(Directory::inspect(&root).unwrap_err().to_string().contains("was not written by tollgate"));
}

#[test]
fn only_a_directory_of_our_own_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    // A directory with files of another program.
    std::fs::create_dir_all(path("other").join("drafts")).unwrap();
    std::fs::write(path("other").join("drafts").join(format!("{:032x}", 1)), "theirs").unwrap();
    let refused = Directory::open(&path("other")).unwrap_err().to_string();
    assert!(refused.ends_with("is not empty, and not a mail queue of tollgate: name another directory"));
    assert!(!path("other").join("lock").exists());
    assert!(path("other").join("drafts").join(format!("{:032x}", 1)).exists());
    // Links in the place of our files.
    drop(Directory::open(&path("ours")).unwrap());
    std::fs::write(path("victim"), "precious").unwrap();
    std::os::unix::fs::symlink(path("victim"), path("ours").join("queue.redb")).unwrap();
    let disk = Directory::open(&path("ours")).unwrap();
    let refused = disk.database(&redb::Builder::new()).unwrap_err().to_string();
    assert!(refused.contains("is not a regular file"), "{refused}");
    drop(disk);
    std::fs::remove_file(path("ours").join("queue.redb")).unwrap();
    // A file that is not a database.
    std::fs::write(path("ours").join("queue.redb"), "precious").unwrap();
    let disk = Arc::new(Directory::open(&path("ours")).unwrap());
    let opened = Queue::open(disk, clock() as Arc<dyn Clock>, options());
    assert!(opened.unwrap_err().to_string().contains("is not the database of a queue"));
    assert_eq!(std::fs::read_to_string(path("ours").join("queue.redb")).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
    // A database of another program.
    let file = path("ours").join("queue.redb");
    std::fs::remove_file(&file).unwrap();
    let theirs = redb::Database::create(&file).unwrap();
    let writing = theirs.begin_write().unwrap();
    writing.open_table(redb::TableDefinition::<u64, u64>::new("theirs")).unwrap();
    writing.commit().unwrap();
    drop(theirs);
    let disk = Arc::new(Directory::open(&path("ours")).unwrap());
    let opened = Queue::open(disk, clock() as Arc<dyn Clock>, options());
    assert!(opened.unwrap_err().to_string().contains("is one of another program"));
    // What is not a text stays where it is.
    std::fs::remove_file(path("ours").join("queue.redb")).unwrap();
    std::fs::write(path("ours").join("texts").join("README"), "mine").unwrap();
    std::os::unix::fs::symlink(path("victim"), path("ours").join("texts").join(format!("{:032x}", 9)))
        .unwrap();
    let disk = Arc::new(Directory::open(&path("ours")).unwrap());
    let _queue = open(disk, &clock());
    assert!(path("ours").join("texts").join("README").exists());
    assert!(path("ours").join("texts").join(format!("{:032x}", 9)).is_symlink());
    // A new one can be used by its owner alone.
    use std::os::unix::fs::PermissionsExt;
    let mode = |part: &str| std::fs::metadata(path("ours").join(part)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("texts"), mode("lock")), (0o700, 0o700, 0o600));
}
