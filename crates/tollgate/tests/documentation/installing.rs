//! The commands of the guide to installing run as they are written, on a throw-away copy of this system: an overlay over
//! `/` in namespaces of its own. They need root, as the package's test does.
//!
//! There is no service manager, container engine, Kubernetes or network in it. Their commands are recorded, and what they
//! name is compared with the files of this project. `cargo` and `packaging/release` are stand-ins too, which bring the
//! program of this test. `packaging.rs` tests the package itself.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Command;

use crate::pages::Page;
use crate::server::root;
use serde_json::Value;

const PAGE: &str = "docs/guides/installing.md";

/// Makes the copy, and runs `/tmp/run` in it: the tree is in `/tmp/tree`.
const COPY: &str = r#"
mount -t tmpfs tmpfs "$1"
mkdir "$1"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind /dev "$1/root/dev"
mount -t proc proc "$1/root/proc"
mount -t tmpfs tmpfs "$1/root/run"
mount -t tmpfs tmpfs "$1/root/tmp"
mkdir -p "$1"/root/tmp/{tree/target/dist,tree/target/packages,bin}
cp -r "$2"/{examples,packaging} "$1/root/tmp/tree/"
cp "$3" "$1/root/tmp/program"
cp "$4" "$1/root/tmp/run"
exec chroot "$1/root" bash -eu -o pipefail /tmp/run
"#;

/// Stand-ins, then the commands of the page between two lines for each block, then what they left.
fn script(blocks: &[String], drop_in: &str) -> String {
    let stand_in = |name: &str, body: &str| {
        format!("printf '#!/bin/bash\\n%s\\n' '{body}' >/tmp/bin/{name}; chmod +x /tmp/bin/{name}\n")
    };
    let mut script =
        "export PATH=/tmp/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\ncd /tmp/tree\n".to_owned();
    script += &stand_in("sudo", "exec \"$@\"");
    for name in ["apt", "docker", "kubectl", "helm", "systemctl", "journalctl"] {
        script += &stand_in(name, "echo \"${0##*/} $*\"");
    }
    script += &stand_in("cargo", "echo \"cargo $*\"; cp /tmp/program target/dist/tollgate");
    script +=
        "printf '#!/bin/bash\\ntouch target/packages/tollgate_0.1.0-1_amd64.deb\\n' >packaging/release\n";
    // The page installs by hand and does not expect the user of an installed package.
    script += "rm -f /usr/local/bin/tollgate; ! id tollgate 2>/dev/null || userdel tollgate\n";
    for block in blocks {
        script += &format!("echo '== block'\n{block}");
    }
    script += &format!(
        "echo '== left'\n\
         getent passwd tollgate\n\
         cmp examples/mail-levels.yaml /etc/tollgate/tollgate.yaml\n\
         cmp /tmp/program /usr/local/bin/tollgate\n\
         mkdir /etc/systemd/system/tollgate.service.d\n\
         cat >/etc/systemd/system/tollgate.service.d/override.conf <<'EOF'\n{drop_in}EOF\n\
         rm /tmp/bin/systemctl\n\
         systemd-analyze verify --man=no /etc/systemd/system/tollgate.service 2>&1\n\
         echo verified\n"
    );
    script
}

#[test]
fn the_commands_of_the_page_install_the_program_and_its_unit() {
    let page = Page::at(PAGE);
    let of = |language: &str| -> Vec<String> {
        let blocks = page.blocks().into_iter().filter(|block| block.language == language);
        blocks.map(|block| block.text).collect()
    };
    let blocks = of("sh");
    let drop_in: String = of("text").concat().lines().map(|line| format!("{}\n", line.trim())).collect();
    let place = tempfile::tempdir().unwrap();
    let run = place.path().with_extension("run");
    std::fs::write(&run, script(&blocks, &drop_in)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "private", "--"])
        .args(["bash", "-eu", "-o", "pipefail", "-c", COPY, "-"])
        .args([place.path(), &root()])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .arg(&run)
        .output()
        .unwrap();
    std::fs::remove_file(&run).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let printed: Vec<&str> = said.split("== block\n").skip(1).collect();
    let [package, compose, helm, build, unit, upgrade] = printed[..] else { panic!("{said}") };
    assert_eq!(package, "apt install ./target/packages/tollgate_0.1.0-1_amd64.deb\n");
    assert_eq!(compose, "docker compose -f packaging/compose.yaml up --build\n");
    assert_eq!(build, "cargo build --profile dist\n");
    assert!(
        unit.ends_with("systemctl daemon-reload\nsystemctl enable --now tollgate\njournalctl -u tollgate\n"),
        "{unit}"
    );
    assert!(upgrade.contains("\nsystemctl restart tollgate\n== left\n"), "{upgrade}");
    assert!(
        upgrade.contains(":/var/lib/tollgate:/usr/sbin/nologin\n") && upgrade.ends_with("verified\n"),
        "{upgrade}"
    );
    compose_has_variables(&blocks[1]);
    chart_has_settings(helm);
}

/// The variables that the page exports are those of the compose file.
fn compose_has_variables(block: &str) {
    let compose = std::fs::read_to_string(root().join("packaging/compose.yaml")).unwrap();
    for word in block.lines().next().unwrap().split_whitespace().skip(1) {
        if let Some((name, _)) =
            word.split_once('=').filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        {
            assert!(
                compose.contains(&format!("${{{name}")) || compose.contains(&format!("${name}")),
                "no {name}"
            );
        }
    }
}

/// The chart has every setting that the page makes, and the secrets are those that the page creates.
fn chart_has_settings(printed: &str) {
    let values = std::fs::read_to_string(root().join("packaging/helm/tollgate/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let line = printed
        .lines()
        .find(|line| line.starts_with("helm install tollgate packaging/helm/tollgate "))
        .unwrap();
    let mut found = 0;
    for (name, value) in line.split(" --set ").skip(1).map(|setting| setting.trim().split_once('=').unwrap())
    {
        assert!(values.pointer(&format!("/{}", name.replace('.', "/"))).is_some(), "the chart has no {name}");
        if name.ends_with("Secret.name") {
            assert!(
                printed.contains(&format!("kubectl create secret generic {value} ")),
                "no secret {value}"
            );
        }
        found += 1;
    }
    assert_eq!(found, 5, "{line}");
}
