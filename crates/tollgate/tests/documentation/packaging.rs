//! The packages: a Debian package that is installed, started, upgraded and purged by the real dpkg, and the
//! descriptions of containers, which are checked as far as that is possible without a container engine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// Packs the program of this test under a version.
fn deb(version: &str, out: &Path) -> PathBuf {
    let built = env!("CARGO_BIN_EXE_tollgate");
    let mut command = Command::new(root().join("packaging/release"));
    command.args(["--built", built, "--deb-version", version, "--out"]).arg(out);
    run(&mut command);
    let name = format!("tollgate_{version}_");
    let mut files = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name)).unwrap()
}

/// The package has the unit, manual pages, completions and the configuration.
fn has_its_files(package: &Path) {
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(package));
    for path in [
        "./usr/bin/tollgate",
        "./usr/lib/systemd/system/tollgate.service",
        "./etc/tollgate/tollgate.yaml",
        "./usr/share/man/man1/tollgate.1.gz",
        "./usr/share/man/man1/tollgate-serve.1.gz",
        "./usr/share/bash-completion/completions/tollgate",
        "./usr/share/zsh/vendor-completions/_tollgate",
        "./usr/share/fish/vendor_completions.d/tollgate.fish",
        "./usr/share/doc/tollgate/copyright",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(path)), "no {path} in\n{listed}");
    }
    let about = run(Command::new("dpkg-deb").arg("--field").arg(package));
    assert!(about.contains("Depends: ") && about.contains("adduser") && about.contains("libc6"), "{about}");
}

#[test]
fn the_debian_package_installs_serves_upgrades_and_leaves_nothing_when_purged() {
    let out = tempfile::tempdir().unwrap();
    let (old, new) = (deb("0.1.0-1", out.path()), deb("0.1.0-2", out.path()));
    has_its_files(&old);
    let said = run(Command::new(root().join("packaging/try-deb")).args([old, new]));
    for step in ["installed", "served", "upgraded", "removed", "purged"] {
        assert!(said.lines().any(|line| line == step), "no line `{step}` in\n{said}");
    }
}

#[test]
fn the_nodes_of_the_compose_file_share_a_store_with_a_password_on_an_internal_network() {
    let compose = yaml("packaging/compose.yaml");
    let services = compose["services"].as_object().unwrap();
    assert_eq!(services.len(), 4);
    let valkey = &services["valkey"];
    assert_eq!(valkey["networks"], serde_json::json!(["store"]));
    assert!(valkey.get("ports").is_none());
    assert!(valkey["command"][2].as_str().unwrap().contains("--requirepass \"$$VALKEY_PASSWORD\""));
    assert_eq!(compose["networks"]["store"]["internal"], true);
    for name in ["node-1", "node-2", "node-3"] {
        let node = &services[name];
        assert!(node["ports"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{node}");
    }
    let said = run(Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["check-config", "--strict", "packaging/compose/tollgate.yaml"])
        .current_dir(root())
        .env("TOLLGATE_ADMIN_TOKEN", "a-token-of-the-admin")
        .env("TOLLGATE_REDIS_PASSWORD", "a-password"));
    assert!(said.contains("valkey:6379"), "{said}");
}

#[test]
fn the_image_runs_the_program_that_the_release_builds_as_no_root() {
    let file = text("packaging/Dockerfile");
    for line in ["cargo build --profile dist --package tollgate", "USER 65532:65532", "/usr/bin/tollgate"] {
        assert!(file.contains(line), "no {line}");
    }
    let toolchain = text("rust-toolchain.toml");
    let version = file.lines().find_map(|line| line.strip_prefix("FROM rust:")?.split('-').next()).unwrap();
    assert!(toolchain.contains(version), "the image builds with Rust {version}");
}

/// A program that `./test` installs for the tests.
fn installed(name: &str) -> Command {
    let program = root().join(".venv/bin").join(name);
    assert!(program.is_file(), "`./test` installs {name}");
    Command::new(program)
}

/// Helm, which sees the charts.
fn helm(command: &str) -> Command {
    let mut helm = installed("helm");
    helm.current_dir(root().join("packaging/helm")).args([command, "tollgate"]);
    if command == "template" {
        helm.arg("tollgate");
    }
    helm
}

/// What Helm renders with these settings. Kubernetes' schemas, without unknown properties, accept each document.
fn render(settings: &str) -> String {
    run(helm("lint").args(["--strict", "--set", settings]));
    let rendered = run(helm("template").args(["--set", settings]));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    fs::write(&file, &rendered).unwrap();
    let said = run(installed("kubernetes-validate").arg("--strict").arg(&file));
    let passed = said.matches(" passed for resource ").count();
    // A ServiceMonitor belongs to Prometheus' operator, and Kubernetes has no schema of it.
    let own = rendered.lines().filter(|line| line.starts_with("kind: ") && !line.ends_with("ServiceMonitor"));
    assert_eq!(passed, own.count(), "{said}");
    rendered
}

/// The settings of the chart for a store.
fn settings_for(store: &str) -> Vec<String> {
    let mut settings = vec!["adminTokenSecret.name=admin".to_owned(), format!("store.kind={store}")];
    match store {
        "redis" => settings.push("store.address=redis://valkey.data:6379".to_owned()),
        "postgres" => settings.push("store.address=postgres://tollgate@postgres.data/limits".to_owned()),
        _ => return settings,
    }
    settings.extend(["store.passwordSecret.name=store", "replicas=3"].map(str::to_owned));
    settings
}

/// Checks the configuration in what Helm rendered. The secrets are files of the test.
fn check_rendered(rendered: &str) -> String {
    let config = rendered
        .split("\n---")
        .filter_map(|document| serde_saphyr::from_str::<Value>(document).ok())
        .find_map(|document| document["data"]["tollgate.yaml"].as_str().map(str::to_owned));
    let secrets = tempfile::tempdir().unwrap();
    for name in ["admin/token", "read/token", "store/password"] {
        let path = secrets.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("a-secret-of-more-than-16-characters-{name}")).unwrap();
    }
    let config = config.expect("there is a ConfigMap with the configuration");
    let config = config.replace("/etc/tollgate/secrets", secrets.path().to_str().unwrap());
    let config = config.replace("/var/lib/tollgate", secrets.path().to_str().unwrap());
    let file = secrets.path().join("tollgate.yaml");
    fs::write(&file, config).unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("check-config").arg(&file))
}

#[test]
fn helm_renders_a_valid_configuration_for_every_store() {
    for store in ["none", "redis", "postgres"] {
        let rendered = render(&settings_for(store).join(","));
        assert!(rendered.contains("emptyDir: {}"), "{rendered}");
        assert_eq!(rendered.contains("kind: PodDisruptionBudget"), store != "none", "{rendered}");
        check_rendered(&rendered);
    }
}

#[test]
fn helm_renders_a_service_monitor_that_has_a_key() {
    let monitor = settings_for("redis").join(",") + ",serviceMonitor.enabled=true";
    let refused = helm("template").args(["--set", &monitor]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("readTokenSecret.name is required"), "{said}");
    let rendered = render(&(monitor + ",readTokenSecret.name=read"));
    assert!(rendered.contains("kind: ServiceMonitor") && rendered.contains("path: /metrics"), "{rendered}");
    check_rendered(&rendered);
}

#[test]
fn helm_renders_a_relay_only_with_a_claim() {
    let relay = settings_for("none").join(",") + ",config.relay.hostname=relay.example.com";
    let refused = helm("template").args(["--set", &relay]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("persistence.existingClaim"), "{said}");
    let rendered = render(&(relay + ",persistence.existingClaim=mail"));
    assert!(rendered.contains("persistentVolumeClaim: { claimName: mail }"), "{rendered}");
    assert!(check_rendered(&rendered).contains("relay.example.com"));
}

#[test]
fn the_chart_keeps_acknowledged_mail_on_a_claim() {
    let chart = "packaging/helm/tollgate";
    let deployment = text(&format!("{chart}/templates/deployment.yaml"));
    let lines: Vec<&str> = deployment.lines().map(str::trim).collect();
    let after = |first: &str| {
        let at = lines.iter().position(|line| *line == first).unwrap_or_else(|| panic!("no {first}"));
        &lines[at + 1..]
    };
    let relay = after("{{- if .Values.config.relay }}");
    assert_eq!(relay[0], "{{- if not .Values.persistence.existingClaim }}");
    assert!(
        relay[1].starts_with("{{- fail ") && relay[1].contains("persistence.existingClaim"),
        "{}",
        relay[1]
    );
    let state = after("- name: state");
    assert_eq!(state[0], "{{- if .Values.persistence.existingClaim }}");
    assert!(state[1].starts_with("persistentVolumeClaim:") && state[3] == "emptyDir: {}", "{state:?}");
    assert_eq!(yaml(&format!("{chart}/values.yaml"))["persistence"]["existingClaim"], "");
}

#[test]
fn the_values_of_the_chart_fit_their_schema_and_make_a_valid_configuration() {
    let chart = "packaging/helm/tollgate";
    assert_eq!(yaml(&format!("{chart}/Chart.yaml"))["appVersion"], env!("CARGO_PKG_VERSION"));
    let values = yaml(&format!("{chart}/values.yaml"));
    let schema: Value = serde_json::from_str(&text(&format!("{chart}/values.schema.json"))).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("values.json", schema).unwrap();
    let index = compiler.compile("values.json", &mut schemas).unwrap();
    assert!(schemas.validate(&values, index).is_ok());
    for (path, wrong) in [("/store/kind", "mongodb"), ("/image/pullPolicy", "Sometimes")] {
        let mut values = values.clone();
        *values.pointer_mut(path).unwrap() = Value::from(wrong);
        assert!(schemas.validate(&values, index).is_err(), "{path}");
    }
    // What the template `tollgate.config` adds.
    let mut config = values["config"].clone();
    config["listen"] = serde_json::json!({ "http": "127.0.0.1:8080" });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tollgate.yaml");
    fs::write(&file, config.to_string()).unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("check-config").arg(&file));
    let templates = fs::read_dir(root().join(chart).join("templates")).unwrap();
    for path in templates.map(|entry| entry.unwrap().path()) {
        let template = fs::read_to_string(&path).unwrap();
        let count = |text: &str| template.matches(text).count();
        assert_eq!(count("{{"), count("}}"), "{}", path.display());
        let opened =
            ["{{- if ", "{{ if ", "{{- with ", "{{- range ", "{{- define "].map(count).iter().sum::<usize>();
        let closed =
            ["{{- end }}", "{{ end -}}", "{{ end }}", "{{- end -}}"].map(count).iter().sum::<usize>();
        assert_eq!(opened, closed, "{}", path.display());
    }
}
