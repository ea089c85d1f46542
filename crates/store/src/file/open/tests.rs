//! Files that are opened, set aside and renamed.

use super::*;

#[test]
fn a_file_that_was_put_in_place_of_the_inspected_one_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    fs::write(&path, "inspected").unwrap();
    let inspected = File::open(&path).unwrap();
    fs::rename(&path, directory.path().join("moved")).unwrap();
    fs::write(&path, "another").unwrap();
    assert!(put_aside(&inspected, &path, "it is damaged".to_owned()).is_err());
    assert!(remove_empty(&inspected, &path).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"another");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing was renamed");
}

#[test]
fn a_damaged_file_that_cannot_be_renamed_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    // With the ending of a damaged file the name is too long.
    let path = directory.path().join("x".repeat(250));
    fs::write(&path, "damaged").unwrap();
    let error = put_aside(&File::open(&path).unwrap(), &path, "it is damaged".to_owned()).unwrap_err();
    assert!(matches!(error, OpenError::Io { doing: "set aside", .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"damaged");
}

#[test]
fn nothing_is_ever_renamed_over_another_file_or_link() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "file").unwrap();
    fs::write(at("other"), "other").unwrap();
    std::os::unix::fs::symlink(at("missing"), at("link")).unwrap();
    for to in ["other", "link"] {
        let error = move_unless_there(&at("file"), &at(to)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{to}");
    }
    assert_eq!(
        (fs::read(at("file")).unwrap(), fs::read(at("other")).unwrap()),
        (b"file".into(), b"other".into())
    );
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    move_unless_there(&at("file"), &at("free")).unwrap();
    assert!(!at("file").exists() && fs::read(at("free")).unwrap() == b"file");
    // A directory cannot have a second name, as no file can on some file systems.
    fs::create_dir(at("directory")).unwrap();
    move_unless_there(&at("directory"), &at("new name")).unwrap();
    assert!(!at("directory").exists() && at("new name").is_dir());
    assert!(move_unless_there(&at("missing"), &at("nowhere")).is_err());
}

#[test]
fn a_bare_name_is_in_the_current_directory() {
    sync_directory(Path::new("state.redb")).unwrap();
    assert!(sync_directory(Path::new("/no such directory/state.redb")).is_err());
}

#[test]
fn an_error_tells_what_failed_and_what_to_do() {
    let path = Path::new("/state.redb");
    let told = |kind: io::ErrorKind| failed_to("open", path)(kind.into());
    for (kind, advice) in [
        (io::ErrorKind::PermissionDenied, "; the file and its directory must be readable and writable"),
        (io::ErrorKind::NotFound, "; its directory must exist"),
        (io::ErrorKind::StorageFull, ""),
    ] {
        let cause = io::Error::from(kind).to_string();
        assert_eq!(told(kind).to_string(), format!("cannot open /state.redb: {cause}{advice}"));
        assert!(std::error::Error::source(&told(kind)).is_some_and(|source| source.to_string() == cause));
    }
    assert!(std::error::Error::source(&not_ours(path)).is_none());
}

#[test]
fn a_disk_that_cannot_be_read_is_no_damage_and_bytes_that_make_no_sense_are() {
    let path = Path::new("/state.redb");
    for (kind, is_damage) in [
        (io::ErrorKind::InvalidData, true),
        (io::ErrorKind::UnexpectedEof, true),
        (io::ErrorKind::InvalidInput, true),
        (io::ErrorKind::PermissionDenied, false),
        (io::ErrorKind::Other, false),
    ] {
        let refused = refused(path, Unreadable::Database(redb::Error::Io(kind.into())));
        assert_eq!(matches!(refused, Refused::Damaged(_)), is_damage, "{kind:?}");
    }
}
