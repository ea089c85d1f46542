//! `tollgate import` of files with 10,000 lines, beside splitting the same text into words.

use std::fmt::Write as _;
use std::hint::black_box;

use tollgate_import::{Answers, Input, import};

use crate::rounds::{line, measure};

const LINES: usize = 10_000;

pub fn run() {
    for (what, name, text) in [
        ("domains of Sendry", "sendry.yaml", sendry()),
        ("locations of nginx", "nginx.conf", nginx()),
        ("descriptors of Envoy", "envoy.yaml", envoy()),
        ("limits of limitador", "limitador.yaml", limitador()),
        ("accounts of genro-mail-proxy", "accounts.json", accounts()),
    ] {
        assert!(text.lines().count() >= LINES, "{what}: {}", text.lines().count());
        let answers = Answers::default();
        let times = measure(
            5,
            &mut [
                &mut || {
                    black_box(text.split_whitespace().map(str::len).sum::<usize>());
                    1
                },
                &mut || {
                    let imported = import(&[Input { name, text: &text }], &answers).expect("it is valid");
                    black_box(imported.config.len());
                    1
                },
            ],
        );
        let whole = format!("{:.0} ms", times.nanos(1) / 1e6);
        let words = format!("splitting it into words {:.2} ms", times.nanos(0) / 1e6);
        line(&format!("importing 10,000 lines, {what}"), &whole, &words, times.ratio(1, 0), "< 1 s");
    }
}

fn written(head: &str, repeat: usize, mut one: impl FnMut(usize, &mut String)) -> String {
    let mut text = head.to_owned();
    (0..repeat).for_each(|index| one(index, &mut text));
    text
}

fn sendry() -> String {
    written("domains:\n", LINES / 4, |index, text| {
        let limits = "    rate_limit:\n      messages_per_hour: 100\n      messages_per_day: 1000\n";
        write!(text, "  d{index}.example:\n{limits}").expect("a string takes everything");
    })
}

fn nginx() -> String {
    let head = "limit_req_zone $binary_remote_addr zone=z:10m rate=10r/s;\nserver {\n";
    let text = written(head, LINES / 4, |index, text| {
        let limit = "    limit_req zone=z burst=20 nodelay;\n    proxy_pass http://app;\n";
        write!(text, "  location /l{index}/ {{\n{limit}  }}\n").expect("a string takes everything");
    });
    text + "}\n"
}

fn envoy() -> String {
    written("domain: d\ndescriptors:\n", LINES / 5, |index, text| {
        let limit = "    rate_limit:\n      unit: day\n      requests_per_unit: 5\n";
        write!(text, "  - key: user\n    value: u{index}\n{limit}").expect("a string takes everything");
    })
}

fn limitador() -> String {
    written("", LINES / 5 + 1, |index, text| {
        let limit = "  max_value: 10\n  seconds: 60\n  variables: [user]\n";
        let conditions = format!("  conditions: [\"method == 'M{index}'\"]\n");
        write!(text, "- namespace: shop\n{limit}{conditions}").expect("a string takes everything");
    })
}

fn accounts() -> String {
    let text = written("[\n", LINES / 5, |index, text| {
        let comma = if index == 0 { "" } else { ",\n" };
        let limits = "\"limit_per_minute\": 10,\n\"limit_per_hour\": 500\n";
        write!(text, "{comma}{{\n\"id\": \"a{index}\",\n{limits}}}").expect("a string takes everything");
    });
    text + "\n]\n"
}
