//! Real lines of every format become the attempts that they report.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::support::{self, Decided, MIDNIGHT, mapped, policies, reading, replay, rule};
use tollgate_replay::feed::{Reading, Refused};

/// Replays through a policy that reads every field and denies nothing.
fn read(log: &str, reading: &Reading) -> (Vec<&'static str>, Vec<Decided>) {
    let fields = ["ip", "path", "method"];
    let policies =
        policies(vec![rule("all", &fields, &["1000000/hour"]), rule("user", &["user"], &["1000000/hour"])]);
    let (outcome, decided) = replay(&policies, &[log.as_bytes()], reading).unwrap();
    assert_eq!(outcome.account.unreadable, 0, "{:?}", outcome.account.samples);
    (outcome.account.formats, decided)
}

fn values(decided: &Decided) -> [Option<&str>; 4] {
    ["ip", "method", "path", "user"].map(|field| decided.field(field))
}

#[test]
fn combined_and_common_lines_of_nginx_and_apache() {
    let combined = r#"192.0.2.7 - ada [17/Nov/2026:09:08:55 +0100] "GET /cart?item=1 HTTP/1.1" 200 512 "https://shop.example/" "Mozilla/5.0 (X11)" "10.0.0.1" 0.004
2001:db8::7 - - [17/Nov/2026:09:08:56 +0100] "POST /pay%2e HTTP/2.0" 302 0 "-" "curl/8 \"quoted\"""#;
    let (formats, decided) = read(combined, &reading());
    assert_eq!(formats, ["combined"]);
    assert_eq!(values(&decided[0]), [Some("192.0.2.7"), Some("GET"), Some("/cart"), Some("ada")]);
    assert_eq!(values(&decided[1]), [Some("2001:db8::7"), Some("POST"), Some("/pay."), None]);
    assert_eq!(decided[0].at.as_micros(), MIDNIGHT + (8 * 3_600 + 8 * 60 + 55) * 1_000_000);

    let common = r#"192.0.2.7 - bob [17/Nov/2026:09:08:55 +0000] "GET / HTTP/1.0" 404 209"#;
    let (formats, decided) = read(common, &reading());
    assert_eq!(
        (formats, values(&decided[0])),
        (vec!["common"], [Some("192.0.2.7"), Some("GET"), Some("/"), Some("bob")])
    );

    let vhost =
        r#"shop.example:443 192.0.2.7 - bob [17/Nov/2026:09:08:55 +0000] "GET / HTTP/1.0" 404 209 "-" "x""#;
    let (formats, decided) = read(vhost, &reading());
    assert_eq!((formats, decided[0].field("ip")), (vec!["vhost"], Some("192.0.2.7")));
}

#[test]
fn any_log_format_of_nginx_with_its_duration() {
    let format = "$http_x_real_ip|$time_iso8601|$request_method|$request_uri|$request_time|$http_x_user";
    let log = "192.0.2.7|2026-11-17T09:08:55+00:00|PUT|/a/../b?x|1.500|ada\n-|2026-11-17T09:08:56+00:00|GET|/|0.000|-";
    let reading =
        Reading { format: Some(format.to_owned()), ..mapped(&["ip=http_x_real_ip", "user=$http_x_user"]) };
    let (formats, decided) = read(log, &reading);
    assert_eq!(formats, ["pattern"]);
    assert_eq!(values(&decided[0]), [Some("192.0.2.7"), Some("PUT"), Some("/b"), Some("ada")]);
    assert_eq!(values(&decided[1]), [None, Some("GET"), Some("/"), None]);
    assert_eq!(decided[0].at.as_micros(), MIDNIGHT + (9 * 3_600 + 8 * 60 + 53) * 1_000_000 + 500_000);
}

#[test]
fn lines_of_json_with_a_mapping() {
    let log = r#"{"time":"2026-11-17T09:08:55.25Z","client":{"addr":"192.0.2.7"},"verb":"GET","url":"/a?b=c","who":{"name":"ad\u0061"},"n":1}
{"time":1794906535.5,"client":{"addr":"192.0.2.8"},"verb":"GET","url":"/b","who":null}"#;
    let reading = mapped(&["ip=client.addr", "method=verb", "user=who.name"]);
    let (formats, decided) = read(log, &reading);
    assert_eq!(formats, ["json"]);
    assert_eq!(values(&decided[0]), [Some("192.0.2.7"), Some("GET"), Some("/a"), Some("ada")]);
    assert_eq!(values(&decided[1]), [Some("192.0.2.8"), Some("GET"), Some("/b"), None]);
    assert_eq!(decided[0].at.as_micros() % 1_000_000, 250_000);
    assert_eq!(decided[1].at.as_micros() % 1_000_000, 500_000);
}

#[test]
fn caddy_writes_the_end_and_the_duration() {
    let log = r#"{"level":"info","ts":1794906535.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a/b?c=d","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]}},"bytes_read":0,"user_id":"ada","duration":0.5,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;
    let (formats, decided) = read(log, &reading());
    assert_eq!(formats, ["caddy"]);
    assert_eq!(values(&decided[0]), [Some("192.0.2.7"), Some("GET"), Some("/a/b"), Some("ada")]);
    assert_eq!(decided[0].at.as_micros(), 1_794_906_535_024_102, "the start is the end minus the duration");
}

#[test]
fn envoy_writes_the_start() {
    let log = r#"[2026-11-17T09:08:55.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 192.0.2.7" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"
[2026-11-17T09:08:56.310Z] "GET /x HTTP/1.1" 200 - via_upstream - "-" 0 135 5 4 "192.0.2.8" "curl/8" "a-b" "shop.example" "10.0.0.1:80" outbound|80||x 10.0.0.9:1 10.0.0.1:2 10.0.0.3:3 - default"#;
    for (line, ip) in log.lines().zip(["192.0.2.7", "192.0.2.8"]) {
        let reading = mapped(&["user=http_user_agent"]);
        let (formats, decided) = read(line, &reading);
        assert_eq!((formats, decided[0].field("ip")), (vec!["envoy"], Some(ip)), "{line}");
        assert_eq!(decided[0].at.as_micros() % 1_000_000, 310_000, "it is the start already");
    }
}

#[test]
fn an_application_load_balancer_of_aws() {
    let log = r#"https 2026-11-17T09:08:56.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/cart?x=1 HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2026-11-17T09:08:55.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234abcd5678ef90"#;
    let (formats, decided) = read(log, &mapped(&["user=http_user_agent"]));
    assert_eq!(formats, ["alb"]);
    assert_eq!(values(&decided[0]), [Some("192.0.2.7"), Some("GET"), Some("/cart"), Some("curl/7.46.0")]);
    assert_eq!(decided[0].at.as_micros() % 1_000_000, 364_000);

    // The three parts of the duration add up; a part of -1 did not take place.
    let (formats, decided) = read(log, &mapped(&["user=http_user_agent", "time=time"]));
    assert_eq!((formats, decided[0].at.as_micros() % 1_000_000), (vec!["alb"], 186_641 - 171_000));
    let failed = log.replace("0.086 0.048 0.037", "0.086 -1 -1");
    let (_, decided) = read(&failed, &mapped(&["user=http_user_agent", "time=time"]));
    assert_eq!(decided[0].at.as_micros() % 1_000_000, 186_641 - 86_000);
}

#[test]
fn a_request_to_a_load_balancer_of_aws_holds_its_place() {
    let line = |start: &str, parts: &str| {
        format!(
            "http 2026-11-17T09:09:00.000000Z app/lb/1 192.0.2.7:2817 10.0.0.1:80 {parts} 200 200 0 57 \"GET http://shop.example:80/ HTTP/1.1\" \"curl\" - - arn \"Root=1\" \"-\" \"-\" 0 2026-11-17T09:08:{start}Z \"forward\"\n"
        )
    };
    let log = line("50.000000", "0.001 2.000 0.001")
        + &line("51.000000", "0.001 0.100 -1")
        + &line("53.000000", "0.1 0.1 0.1");
    let policies = policies(vec![rule("at_once", &["ip"], &["1 at once"])]);
    let (outcome, decided) = replay(&policies, &[log.as_bytes()], &reading()).unwrap();
    let denied: Vec<bool> = decided.iter().map(Decided::is_denied).collect();
    assert_eq!((outcome.account.durations, denied), (true, vec![false, true, false]));
}

const MAIL: &str = "\
Nov 17 09:08:50 mx postfix/smtpd[101]: connect from mail.example[192.0.2.7]
Nov 17 09:08:51 mx postfix/smtpd[101]: 4XyZ12AbCd: client=mail.example[192.0.2.7], sasl_method=PLAIN, sasl_username=ada
Nov 17 09:08:51 mx postfix/cleanup[102]: 4XyZ12AbCd: message-id=<1@shop.example>
Nov 17 09:08:51 mx postfix/qmgr[103]: 4XyZ12AbCd: from=<ada@shop.example>, size=2048, nrcpt=2 (queue active)
Nov 17 09:08:53 mx postfix/smtp[104]: 4XyZ12AbCd: to=<bob@mail.test>, relay=mx.mail.test[198.51.100.1]:25, delay=2.5, delays=0.1/0/1/1.4, dsn=2.0.0, status=sent (250 ok)
Nov 17 09:08:53 mx postfix/smtp[104]: 4XyZ12AbCd: to=<eve@mail.test>, relay=none, delay=2.5, delays=0.1/0/1/1.4, dsn=4.4.1, status=deferred (connect timed out)
Nov 17 09:18:53 mx postfix/smtp[104]: 4XyZ12AbCd: to=<eve@mail.test>, relay=mx.mail.test[198.51.100.1]:25, delay=602, dsn=2.0.0, status=sent (250 ok)
Nov 17 09:18:53 mx postfix/qmgr[103]: 4XyZ12AbCd: removed
Nov 17 09:18:54 mx postfix/smtpd[101]: NOQUEUE: reject: RCPT from unknown[198.51.100.9]: 450 4.7.1 <x@shop.example>: Recipient address rejected: Slow down; from=<spam@bulk.test> to=<x@shop.example> proto=ESMTP helo=<bulk>
2026-11-17T09:19:00.123456+00:00 mx postfix/smtpd[101]: 5ABCDEF123: client=unknown[198.51.100.8]
Nov 17 09:19:00 mx dovecot: imap-login: Login: user=<ada>
";

#[test]
fn lines_of_postfix_are_joined_by_queue_id() {
    let policies = policies(vec![
        rule("sender", &["sender"], &["1000/hour"]),
        rule("domain", &["domain", "user"], &["1000/hour"]),
        rule("ip", &["ip"], &["1000/hour"]),
    ]);
    let (outcome, decided) = replay(&policies, &[MAIL.as_bytes()], &reading()).unwrap();
    assert_eq!((outcome.account.formats, outcome.account.unreadable), (vec!["postfix"], 0));
    let seen: Vec<_> = decided
        .iter()
        .map(|one| ["sender", "domain", "user", "ip"].map(|field| one.field(field).unwrap_or("-")))
        .collect();
    let sent = ["ada@shop.example", "mail.test", "ada", "192.0.2.7"];
    assert_eq!(seen, [sent, sent, ["spam@bulk.test", "shop.example", "-", "198.51.100.9"]]);
    let came = MIDNIGHT + (9 * 3_600 + 8 * 60 + 50) * 1_000_000 + 500_000;
    assert_eq!(decided[0].at.as_micros(), came, "the delivery minus its delay");
}

#[test]
fn requests_that_were_refused_are_replayed_or_left_out() {
    let log = support::combined(1, "192.0.2.7", "/", 429) + &support::combined(2, "192.0.2.7", "/", 200);
    let policies = policies(vec![rule("ip", &["ip"], &["1000/hour"])]);
    let attempts = |refused| {
        let reading = Reading { refused, ..reading() };
        let (outcome, _) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
        (outcome.tally.attempts, outcome.account.skipped)
    };
    assert_eq!(attempts(Refused::Replayed), (2, 0));
    assert_eq!(attempts(Refused::Skipped), (1, 1));
}

#[test]
fn a_field_that_the_log_lacks_is_an_error_that_names_the_mapping() {
    let policies = policies(vec![rule("tenant", &["header.x-tenant"], &["10/hour"])]);
    let log = support::combined(1, "192.0.2.7", "/", 200);
    let error = replay(&policies, &[log.as_bytes()], &reading()).unwrap_err().to_string();
    assert!(error.contains("rule `tenant` of policy `api` needs the field `header.x-tenant`"), "{error}");
    assert!(error.contains("--map header.x-tenant=COLUMN"), "{error}");
    assert!(error.contains("http_user_agent"), "it lists the columns: {error}");
    let (_, decided) = replay(&policies, &[log.as_bytes()], &mapped(&["header.x-tenant==acme"])).unwrap();
    assert_eq!(decided[0].field("header.x-tenant"), Some("acme"));
    let error =
        replay(&policies, &[log.as_bytes()], &mapped(&["header.x-tenant=http_user_agnt"])).unwrap_err();
    assert!(error.to_string().contains("did you mean `http_user_agent`?"), "{error}");
}
