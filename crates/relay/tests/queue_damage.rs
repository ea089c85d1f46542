//! Damage: broken rows, missing texts, another format, a database that cannot be read, and a disk that fails.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod keeping;

use std::sync::Arc;

use keeping::forgetful::Forgetful;
use keeping::{clock, envelope, open, options, read_text, submit, text_of};
use tollgate_core::Clock;
use tollgate_relay::message::{IntakeError, MessageId};
use tollgate_relay::queue::disk::{Directory, Disk};
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
    drop((queue, opened));
    let (_queue, opened) = open(Arc::new(disk), &clock());
    assert_eq!(opened.damaged, [], "it is reported once");
}

#[tokio::test]
async fn a_damaged_item_ends_and_the_message_with_it() {
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
    std::fs::write(directory.path().join("queue.redb"), vec![7; 100_000]).unwrap();
    let disk = Arc::new(Directory::open(directory.path()).unwrap());
    let (queue, opened) = open(disk, &clock());
    let aside = opened.set_aside.unwrap();
    assert_eq!(std::fs::read(aside.join("queue.redb")).unwrap(), vec![7; 100_000]);
    submit(&queue, envelope(1, &["a@one.example"]), &text_of(1, 40_000)).await.unwrap();
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
