//! Errors in the communication with the server, and their messages.

use std::net::TcpListener;

use crate::responder::{Reply, Responder, run};

#[test]
fn a_server_that_is_not_there_is_named_with_a_remedy() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let run = run(&url, &["check", "api"], &[]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    let expected = format!(
        "error: cannot reach {url}: connection refused. Is `tollgate serve` running? Set --server or TOLLGATE_SERVER.\n"
    );
    assert_eq!(run.err, expected);
}

#[test]
fn a_server_that_hangs_is_given_up() {
    let server = Responder::always(Reply::Hang);
    let run = server.run(&["check", "api", "--timeout", "300ms"]);
    let expected = format!(
        "error: {} did not answer within 300ms. It may still have acted. Use --timeout to wait longer.\n",
        server.url()
    );
    assert_eq!((run.code, run.err), (2, expected));
    assert_eq!(server.asked().len(), 1, "a question that charges is never asked twice");
}

#[test]
fn a_connection_that_ends_without_an_answer_is_an_error_and_not_asked_again() {
    let server = Responder::always(Reply::Close);
    let run = server.run(&["check", "api"]);
    assert_eq!(run.code, 2);
    assert!(run.err.starts_with(&format!("error: cannot reach {}: ", server.url())), "{}", run.err);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn whatever_is_no_tollgate_is_said_to_be_none() {
    let html = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>";
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"allowed\":true";
    let other = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"hello\":\"you\"}";
    let gateway = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad";
    let moved = b"HTTP/1.1 302 Found\r\ncontent-length: 34\r\n\r\n{\"allowed\":true,\"verdict\":\"allow\"}";
    let nothing = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let not_http = b"220 mail.example ESMTP\r\n";
    for bytes in [&html[..], cut, other, gateway, moved, nothing, not_http] {
        for format in [&["check", "api"][..], &["check", "api", "--json"]] {
            let server = Responder::always(Reply::Raw(bytes));
            let run = server.run(format);
            let said = String::from_utf8_lossy(bytes);
            assert_eq!((run.code, run.out.as_str()), (2, ""), "{said}");
            assert!(run.err.contains(&server.url()) && run.err.starts_with("error: "), "{said}: {}", run.err);
            assert_eq!(server.asked().len(), 1, "{said}");
        }
    }
}

#[test]
fn a_redirect_does_not_carry_the_token_away() {
    let other = Responder::always(Reply::Json(200, r#"{"reloaded":true}"#));
    let moved = format!("HTTP/1.1 307 x\r\nlocation: {}/\r\ncontent-length: 0\r\n\r\n", other.url());
    let server = Responder::always(Reply::Raw(moved.leak().as_bytes()));
    let run = run(&server.url(), &["config"], &[("TOLLGATE_TOKEN", "secret-token")]);
    assert_eq!(run.code, 2);
    assert!(other.asked().is_empty());
}

const UNAUTHORIZED: &str = r#"{"type":"/problems/unauthorized","title":"Unauthorized","status":401,"detail":"this needs a token","correlationId":"abc"}"#;
const FORBIDDEN: &str = r#"{"type":"/problems/forbidden","title":"Forbidden","status":403,"detail":"this needs the role admin","correlationId":"abc"}"#;
const OUT: &str = r#"{"type":"/problems/store","title":"Store unavailable","status":503,"detail":"the store cannot answer","correlationId":"abc"}"#;
const MISTAKE: &str = r#"{"type":"/problems/bad-request","title":"Bad request","status":400,"detail":"there is no policy `ap`; did you mean `api`?","correlationId":"abc"}"#;

#[test]
fn a_refusal_says_why_and_what_to_do() {
    let table = [
        (
            401,
            UNAUTHORIZED,
            "error: Unauthorized: this needs a token (correlation id abc). Set TOLLGATE_TOKEN or --token-file.\n",
        ),
        (403, FORBIDDEN, "error: Forbidden: this needs the role admin (correlation id abc)\n"),
        (503, OUT, "error: Store unavailable: the store cannot answer (correlation id abc)\n"),
        (
            400,
            MISTAKE,
            "error: Bad request: there is no policy `ap`; did you mean `api`? (correlation id abc)\n",
        ),
    ];
    for (status, problem, expected) in table {
        let server = Responder::always(Reply::Problem(status, problem));
        let words = server.run(&["check", "ap"]);
        assert_eq!((words.code, words.out.as_str(), words.err.as_str()), (2, "", expected));
        let json = server.run(&["check", "ap", "--json"]);
        assert_eq!((json.code, json.out, json.err.as_str()), (2, format!("{problem}\n"), expected));
    }
}

#[test]
fn every_command_exits_with_2_when_it_is_refused() {
    let commands: [&[&str]; 12] = [
        &["check", "p"],
        &["peek", "r", "k"],
        &["reset", "r", "k"],
        &["set", "r", "k", "1/s"],
        &["set", "r", "k", "--unset"],
        &["give", "x"],
        &["holds", "r", "k"],
        &["top"],
        &["decisions"],
        &["config"],
        &["reload"],
        &["bench", "--policy", "api", "--requests", "1"],
    ];
    for command in commands {
        let server = Responder::always(Reply::Problem(401, UNAUTHORIZED));
        let run = server.run(command);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{command:?}");
        assert!(run.err.contains("Set TOLLGATE_TOKEN"), "{command:?}: {}", run.err);
        assert_eq!(server.asked().len(), 1, "{command:?}");
    }
}

#[test]
fn a_refused_configuration_prints_every_line_of_its_problems() {
    let problem = r#"{"type":"/problems/configuration","title":"Configuration refused","status":422,"detail":"tollgate.yaml:2:16: rules.a.limits: nonsense\n    5\n     ^","correlationId":"abc"}"#;
    let run = Responder::always(Reply::Problem(422, problem)).run(&["reload"]);
    let expected = "error: Configuration refused: tollgate.yaml:2:16: rules.a.limits: nonsense\n    5\n     ^ (correlation id abc)\n";
    assert_eq!((run.code, run.err.as_str()), (2, expected));
}

#[test]
fn a_refusal_cannot_act_on_the_terminal() {
    let problem = r#"{"title":"No \u001b[2J","status":400,"detail":"\u001b]0;x\u0007"}"#;
    let run = Responder::always(Reply::Problem(400, problem)).run(&["reload"]);
    assert_eq!(run.err, "error: No \\u{1b}[2J: \\u{1b}]0;x\\u{7}\n");
}

#[test]
fn invalid_arguments_exit_with_2_and_send_no_request() {
    let server = Responder::always(Reply::Json(200, "{}"));
    let wrong: [&[&str]; 9] = [
        &["check", "p", "ip"],
        &["check", "p", "=x"],
        &["check", "p", "a=1", "a=2"],
        &["check", "p", "--cost", "-1"],
        &["check", "p", "--timeout", "0s"],
        &["reload", "--token-file", "no-such-file"],
        &["bench", "--batch", "101"],
        &["bench", "--field", "ip=@0"],
        &["bench", "--policy", "api", "--requests", "5", "--duration", "5s"],
    ];
    for arguments in wrong {
        let run = server.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}");
        assert!(run.err.starts_with("error: "), "{arguments:?}: {}", run.err);
    }
    assert!(server.asked().is_empty());
    for server in ["127.0.0.1:8080", "http://user:word@127.0.0.1", "http://127.0.0.1?x"] {
        let run = run(server, &["reload"], &[]);
        assert!(run.code == 2 && run.err.contains("--server"), "{}", run.err);
    }
}

#[test]
fn a_password_in_the_address_of_the_server_is_never_printed() {
    for server in [
        "http://user:hunter2@127.0.0.1",
        "user:hunter2@127.0.0.1",
        "http://127.0.0.1/?token=hunter2",
        "user:hunter2",
        "http://[hunter2",
        "unix:/hunter2",
    ] {
        for (arguments, code) in
            [(&["reload", "--server", server][..], 2), (&["reload"], 2), (&["reload", "--help"], 0)]
        {
            let run = run(server, arguments, &[("TOLLGATE_SERVER", server)]);
            assert_eq!(run.code, code, "{arguments:?}: {}", run.err);
            assert!(!run.err.contains("hunter2") && !run.out.contains("hunter2"), "{} {}", run.err, run.out);
        }
    }
}

#[test]
fn an_unusable_token_is_named_by_its_place_and_never_printed() {
    let server = Responder::always(Reply::Json(200, "{}"));
    let run = run(&server.url(), &["reload"], &[("TOLLGATE_TOKEN", "two words")]);
    assert_eq!(run.code, 2);
    assert!(run.err.starts_with("error: TOLLGATE_TOKEN holds no token") && !run.err.contains("two words"));
    assert!(server.asked().is_empty());
}
