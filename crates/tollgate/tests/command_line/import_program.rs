//! `tollgate import` as a program: what it writes, what it never overwrites, and who points to it.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use crate::imported::sample;

/// A directory with the samples.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in [
        "nginx.conf",
        "ingress.yaml",
        "envoy-ratelimit.yaml",
        "limitador.yaml",
        "api-gateway.yml",
        "marketplace.yml",
        "genro-mail-proxy.json",
        "elemta.toml",
        "elemta.env",
        "sendry.yaml",
    ] {
        std::fs::write(home.path().join(name), sample(name)).unwrap();
    }
    home
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).current_dir(home).env_clear().output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The error of a command that must fail with 2 and write nothing.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let before = entries(home);
    let output = run(home, arguments);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}");
    assert_eq!(entries(home), before, "{arguments:?}");
    text(&output.stderr)
}

/// The files of a directory, and their content.
fn entries(home: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn the_configuration_goes_to_standard_output_and_the_report_beside_it() {
    let home = home();
    let output = run(home.path(), &["import", "nginx.conf"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).starts_with("# Imported from nginx.conf (nginx) by `tollgate import`.\n"));
    assert!(
        text(&output.stderr).contains("nginx.conf:6   exact     `5r/m burst=3 nodelay` is `5/min burst 4`")
    );
}

#[test]
fn the_written_file_is_valid_and_overwritten_only_with_force() {
    let home = home();
    let arguments = ["import", "marketplace.yml", "--by", "api-write=user", "-o", "tollgate.yaml"];
    let output = run(home.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout)
            .contains("wrote tollgate.yaml: explain it with `tollgate check-config tollgate.yaml`")
    );
    let checked = run(home.path(), &["check-config", "tollgate.yaml"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert_eq!(
        refused(home.path(), &arguments),
        "error: tollgate.yaml: the file exists: name another one, or replace it with --force\n"
    );
    let forced = run(home.path(), &["import", "sendry.yaml", "-o", "tollgate.yaml", "--force"]);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    let written = std::fs::read_to_string(home.path().join("tollgate.yaml")).unwrap();
    assert!(written.starts_with("# Imported from sendry.yaml"));
    assert!(
        entries(home.path()).iter().all(|(name, _)| !name.starts_with(".tollgate-new")),
        "nothing is left over"
    );
}

#[test]
fn a_refused_import_writes_nothing() {
    let home = home();
    let at = home.path();
    std::fs::create_dir(at.join("directory.yaml")).unwrap();
    std::fs::write(at.join("broken.yaml"), "rate_limit: {").unwrap();
    std::fs::write(at.join("latin.yaml"), b"rate_limit: \xe4").unwrap();
    let table: [(&[&str], &str); 9] = [
        (&["import", "broken.yaml", "-o", "t.yaml"], "error: broken.yaml:"),
        (&["import", "latin.yaml", "-o", "t.yaml"], "error: latin.yaml: is not UTF-8 text from byte 12 on"),
        (&["import", "/dev/zero", "-o", "t.yaml"], "error: /dev/zero: the file is larger than 32 MiB"),
        (&["import", "none.yaml", "-o", "t.yaml"], "error: none.yaml: cannot be read"),
        (
            &["import", "nginx.conf", "sendry.yaml", "-o", "t.yaml"],
            "error: sendry.yaml:1:1: this belongs to Sendry, and nginx.conf:1:1 to nginx",
        ),
        (
            &["import", "sendry.yaml", "-o", "sendry.yaml", "--force"],
            "error: sendry.yaml: this is one of the files to translate",
        ),
        (
            &["import", "sendry.yaml", "-o", "directory.yaml", "--force"],
            "error: directory.yaml: this is not a regular file",
        ),
        (&["import", "sendry.yaml", "-o", "t.toml"], "error: t.toml: the configuration is YAML"),
        (&["import", "sendry.yaml", "-o", "nowhere/t.yaml"], "error: nowhere/t.yaml: cannot be written"),
    ];
    for (arguments, expected) in table {
        let error = refused(at, arguments);
        assert!(error.starts_with(expected), "{error}");
    }
    let store = refused(at, &["import", "marketplace.yml", "--store", "redis:/broken", "-o", "t.yaml"]);
    assert!(
        store.starts_with("error: the files cannot be translated as they are; nothing was written"),
        "{store}"
    );
}

#[test]
fn the_report_is_also_json() {
    let home = home();
    let output = run(home.path(), &["import", "elemta.toml", "elemta.env", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["system"], &report["variables"][0]), (&"Elemta".into(), &"VALKEY_PASSWORD".into()));
    assert!(report["config"].as_str().unwrap().contains("100/min sliding"));
    let last = report["findings"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["file"], &last["line"], &last["verdict"]),
        (&"elemta.env".into(), &2.into(), &"exact".into())
    );
    assert!(!text(&output.stdout).contains("your-secure-password"));
}

#[test]
fn check_config_serve_and_doctor_point_to_the_import_of_a_foreign_file() {
    let home = home();
    for (file, system) in [
        ("nginx.conf", "nginx"),
        ("ingress.yaml", "ingress-nginx"),
        ("envoy-ratelimit.yaml", "Envoy's ratelimit"),
        ("limitador.yaml", "limitador"),
        ("api-gateway.yml", "the API gateway"),
        ("marketplace.yml", "the ad marketplace"),
        ("genro-mail-proxy.json", "genro-mail-proxy"),
        ("elemta.env", "Elemta"),
        ("sendry.yaml", "Sendry"),
        ("elemta.toml", "Elemta"),
    ] {
        for command in ["check-config", "serve", "doctor"] {
            let error = refused(home.path(), &[command, file]);
            let expected = format!(
                "{file}: this is a configuration of {system}, not of tollgate: translate it with `tollgate import {file} -o tollgate.yaml`\n"
            );
            assert!(error.ends_with(&expected), "{command}: {error}");
        }
    }
    std::fs::write(
        home.path().join("ours.yaml"),
        "rules: { a: { limits: 1/s } }\ngateway: { ratelimit: {} }\n",
    )
    .unwrap();
    assert!(!refused(home.path(), &["check-config", "ours.yaml"]).contains("tollgate import"));
    std::fs::write(home.path().join("it's.conf"), sample("nginx.conf")).unwrap();
    assert!(
        refused(home.path(), &["check-config", "it's.conf"])
            .contains(r"`tollgate import 'it'\''s.conf' -o tollgate.yaml`")
    );
}
