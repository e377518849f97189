//! Pulls from a hub that answers what it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::*;
use crate::{Model, tiny};

/// What came in before the first empty line, and what is answered; the connection ends after each.
struct Hub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Hub {
    fn serve(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                noted.lock().unwrap().push(answer_one(stream, &answer));
            }
        });
        Self { address, asked, thread }
    }

    /// All that was asked, once every answer was given.
    fn asked(self) -> Vec<String> {
        self.thread.join().unwrap();
        Arc::into_inner(self.asked).unwrap().into_inner().unwrap()
    }
}

fn question(stream: &TcpStream) -> String {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
    head.to_lowercase()
}

fn answer_one(mut stream: TcpStream, answer: &[u8]) -> String {
    let head = question(&stream);
    stream.write_all(answer).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // The client closes when it has read the end.
    stream.read_to_end(&mut Vec::new()).ok();
    head
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

fn gguf() -> Vec<u8> {
    Synthetic::new().with("a", Value::U32(1)).tensor("t", &[40_000], 0, vec![7; 160_000]).bytes()
}

fn hub_model() -> ModelName {
    "hf:owner/name/folder/some.gguf".parse().unwrap()
}

fn at(hub: &Hub) -> Place {
    let mut place = Place::new();
    place.settings.hub = hub.address.clone();
    place
}

#[test]
fn a_model_comes_from_the_hub_over_redirects() {
    let bytes = gguf();
    let redirect =
        format!("location: /elsewhere?x=1\r\nx-linked-etag: \"{}\"\r\ncontent-length: 0\r\n", sha256(&bytes));
    let whole = format!("content-length: {}\r\netag: \"v1\"\r\n", bytes.len());
    let hub = Hub::serve(vec![answer("302 Found", &redirect, b""), answer("200 OK", &whole, &bytes)]);
    let place = at(&hub);
    let name = hub_model();
    let mut last = None;
    let stored =
        pull(&place.models, &name, None, &place.settings, &mut |progress| last = Some(progress)).unwrap();
    let size = bytes.len() as u64;
    assert_eq!(last, Some(Progress { step: Step::Download, done: size, total: Some(size) }));
    assert_eq!(
        stored.files,
        [StoredFile { name: "some.gguf".to_owned(), bytes: size, sha256: sha256(&bytes) }]
    );
    assert_eq!(place.left(&name), ["manifest.json", "pull.lock", "some.gguf"]);
    assert_eq!(place.models.list().unwrap()[0].name, "hf:owner/name/folder/some.gguf");
    let asked = hub.asked();
    assert!(asked[0].starts_with("get /owner/name/resolve/main/folder/some.gguf http/1.1"));
    assert!(asked[1].starts_with("get /elsewhere?x=1 http/1.1"));
}

#[test]
fn a_broken_download_goes_on_where_it_ended() {
    let bytes = gguf();
    let size = bytes.len();
    let whole = format!("content-length: {size}\r\netag: \"v1\"\r\n");
    let rest = |from: usize| {
        let headers = format!(
            "content-length: {}\r\ncontent-range: bytes {from}-{}/{size}\r\netag: \"v1\"\r\n",
            size - from,
            size - 1
        );
        answer("206 Partial Content", &headers, &bytes[from..])
    };
    let hub = Hub::serve(vec![answer("200 OK", &whole, &bytes[..50_000]), rest(50_000)]);
    let place = at(&hub);
    place.pull(&hub_model(), None).unwrap();
    let asked = hub.asked();
    assert!(!asked[0].contains("range:"));
    assert!(
        asked[1].contains("range: bytes=50000-\r\n") && asked[1].contains("if-range: \"v1\"\r\n"),
        "{asked:?}"
    );

    // The same over two pulls: the first gives up, its part stays and is not taken for a model.
    let cut = || answer("503 Service Unavailable", "content-length: 0\r\n", b"");
    let hub = Hub::serve(vec![answer("200 OK", &whole, &bytes[..70_000]), cut(), cut(), cut(), rest(70_000)]);
    let place = at(&hub);
    let message = place.refusal(&hub_model(), None);
    assert!(message.contains("503") && message.contains("70000 bytes are kept"), "{message}");
    assert!(place.models.list().unwrap().is_empty());
    place.pull(&hub_model(), None).unwrap();
    place.models.verify(&hub_model(), &mut |_| ()).unwrap();
    assert_eq!(place.left(&hub_model()), ["manifest.json", "pull.lock", "some.gguf"]);

    // A file that changed meanwhile is begun anew.
    let hub = Hub::serve(vec![
        answer("200 OK", &whole, &[9; 1000]),
        answer("200 OK", &whole.replace("v1", "v2"), &bytes),
    ]);
    let place = at(&hub);
    place.pull(&hub_model(), None).unwrap();
    assert_eq!(std::fs::read(place.models.file(&hub_model(), ".gguf").unwrap().path).unwrap(), bytes);
    hub.asked();
}

#[test]
fn what_the_hub_gives_wrongly_is_not_used() {
    let bytes = gguf();
    let length = |body: &[u8]| format!("content-length: {}\r\n", body.len());
    let wrong = format!("{}x-linked-etag: \"{}\"\r\n", length(&bytes), sha256(b"other"));
    for (given, words) in [
        (answer("200 OK", &wrong, &bytes), "expected SHA-256"),
        (
            answer("200 OK", &length(b"<html>log in</html>"), b"<html>log in</html>"),
            "does not begin with `GGUF`",
        ),
        (answer("200 OK", &length(&bytes[..90_000]), &bytes[..90_000]), "cut short"),
        (answer("404 Not Found", "content-length: 0\r\n", b""), "404 Not Found"),
        (answer("302 Found", "content-length: 0\r\n", b""), "redirects to no address"),
    ] {
        let tries = if words.contains("redirects") { 4 } else { 1 };
        let hub = Hub::serve(vec![given; tries]);
        let place = at(&hub);
        let message = place.refusal(&hub_model(), None);
        assert!(message.contains(words), "{message}");
        assert!(place.models.list().unwrap().is_empty());
        hub.asked();
    }
}

#[test]
fn the_hub_s_one_usable_file_is_chosen() {
    let bytes = gguf();
    let list = |names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| serde_json::json!({"rfilename": name})).collect();
        let text = serde_json::json!({"id": "owner/name", "siblings": files}).to_string();
        answer("200 OK", &format!("content-length: {}\r\n", text.len()), text.as_bytes())
    };
    let whole = answer("200 OK", &format!("content-length: {}\r\n", bytes.len()), &bytes);
    let name: ModelName = "hf:owner/name".parse().unwrap();
    for names in [["README.md", "only.gguf"].as_slice(), &["a-Q4_K.gguf", "a-q8_0.gguf"]] {
        let hub = Hub::serve(vec![list(names), whole.clone()]);
        let place = at(&hub);
        place.pull(&name, None).unwrap();
        let asked = hub.asked();
        assert!(asked[0].starts_with("get /api/models/owner/name http"));
        assert!(asked[1].starts_with(&format!("get /owner/name/resolve/main/{} http", names[1])));
    }
    for (names, words) in
        [(["a.gguf", "b.gguf"].as_slice(), "name one of them: a.gguf, b.gguf"), (&["x.bin"], "no GGUF file")]
    {
        let hub = Hub::serve(vec![list(names)]);
        let message = at(&hub).refusal(&name, None);
        assert!(message.contains(words), "{message}");
        hub.asked();
    }
}

#[test]
fn a_silent_hub_is_given_up() {
    // The system takes the connections; nobody answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut place = Place::new();
    place.settings.hub = format!("http://{}", listener.local_addr().unwrap());
    place.settings.read_timeout = Duration::from_millis(50);
    for name in [hub_model(), "hf:owner/name".parse().unwrap()] {
        let message = place.refusal(&name, None);
        assert!(message.contains("timed out") && message.contains("WALTZ_MODELS"), "{message}");
    }
}

#[test]
fn a_body_that_stalls_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut place = Place::new();
    place.settings.hub = format!("http://{}", listener.local_addr().unwrap());
    place.settings.read_timeout = Duration::from_millis(200);
    let served = std::thread::spawn(move || {
        for _ in 0..4 {
            let mut stream = listener.accept().unwrap().0;
            question(&stream);
            stream.write_all(&answer("200 OK", "content-length: 1000\r\n", &[7; 100])).unwrap();
            // The rest never comes; the client goes.
            stream.read_to_end(&mut Vec::new()).ok();
        }
    });
    let message = place.refusal(&hub_model(), None);
    assert!(message.contains("timed out, 4 times"), "{message}");
    served.join().unwrap();
}

/// The head of a question, but for what every question says.
fn said(head: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    lines.retain(|line| !line.starts_with("user-agent: waltz/") && *line != "accept: */*");
    lines[1..].sort_unstable();
    lines
}

#[test]
fn a_proxy_is_asked_but_for_hosts_that_need_none() {
    let bytes = gguf();
    let whole = format!("content-length: {}\r\n", bytes.len());
    let near = Hub::serve(vec![answer("200 OK", &whole, &bytes)]);
    let redirect = format!("location: {}/elsewhere\r\ncontent-length: 0\r\n", near.address);
    let proxy = Hub::serve(vec![
        answer("301 Moved Permanently", "location: /again?a=b\r\ncontent-length: 0\r\n", b""),
        answer("302 Found", &redirect, b""),
    ]);
    let mut place = Place::new();
    // Nobody knows this name: only the proxy can be asked for it.
    place.settings.hub = "http://hub.invalid".to_owned();
    place.settings.proxies = Proxies {
        http: proxy.address.replace("http://", "http://me:c%40nary@"),
        none: "other.example, 127.0.0.1".to_owned(),
        ..Proxies::default()
    };
    place.pull(&hub_model(), None).unwrap();
    let asked = proxy.asked();
    let authorized = "proxy-authorization: basic bwu6y0buyxj5";
    let first = "get http://hub.invalid/owner/name/resolve/main/folder/some.gguf http/1.1";
    assert_eq!(said(&asked[0]), [first, "host: hub.invalid", authorized]);
    let second = "get http://hub.invalid/again?a=b http/1.1";
    assert_eq!(said(&asked[1]), [second, "host: hub.invalid", authorized]);
    let host = format!("host: {}", near.address.trim_start_matches("http://"));
    assert_eq!(
        said(&near.asked()[0]),
        ["get /elsewhere http/1.1", &host],
        "straight, and without the password"
    );
}

#[test]
fn a_proxy_for_everything_is_asked_where_no_other_is_named() {
    let refused = answer("407 Proxy Authentication Required", "content-length: 0\r\n", b"");
    for (hub, tries, words) in
        [("http://hub.invalid", 1, "407 Proxy"), ("https://hub.invalid", 4, "proxy authorization required")]
    {
        let proxy = Hub::serve(vec![refused.clone(); tries]);
        let mut place = Place::new();
        place.settings.hub = hub.to_owned();
        place.settings.proxies = Proxies { all: proxy.address.clone(), ..Proxies::default() };
        let message = place.refusal(&hub_model(), None);
        assert!(message.contains(words), "{message}");
        let asked = proxy.asked();
        assert!(
            tries == 1 || message.contains("asking hub.invalid through the proxy 127.0.0.1:"),
            "{message}"
        );
        assert!(tries == 1 || asked[0].starts_with("connect hub.invalid:443 http/1.1"), "{asked:?}");
    }
}

#[test]
fn the_hub_s_password_is_for_the_hub_alone() {
    let bytes = gguf();
    let whole = format!("content-length: {}\r\n", bytes.len());
    let other = Hub::serve(vec![answer("200 OK", &whole, &bytes)]);
    let redirect = format!("location: {}/elsewhere\r\ncontent-length: 0\r\n", other.address);
    let hub = Hub::serve(vec![
        answer("302 Found", "location: /again\r\ncontent-length: 0\r\n", b""),
        answer("302 Found", &redirect, b""),
    ]);
    let mut place = Place::new();
    place.settings.hub = hub.address.replace("http://", "http://me:c%40nary@");
    let stored = place.pull(&hub_model(), None).unwrap();
    assert!(hub.asked().iter().all(|head| head.contains("authorization: basic bwu6y0buyxj5\r\n")));
    assert!(!other.asked()[0].contains("authorization"));
    assert!(!stored.source.contains("nary"), "{stored:?}");
}

#[test]
fn without_a_hub_every_way_is_named() {
    // A port that was free a moment ago: nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut place = Place::new();
    place.settings.hub = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let message = place.refusal(&hub_model(), None);
    for words in ["refused", "HF_ENDPOINT", "--from FILE.gguf", "WALTZ_MODELS"] {
        assert!(message.contains(words), "{message}");
    }
    // The last of these ways works, and the next file takes the place of the first.
    let path = place.write("local.gguf", &gguf());
    place.pull(&hub_model(), Some(&path)).unwrap();
    let folder = place.models.folder().join(hub_model().folder());
    std::fs::create_dir(folder.join("download-killed")).unwrap();
    let path = place.write("second.gguf", &gguf());
    place.pull(&hub_model(), Some(&path)).unwrap();
    assert_eq!(place.left(&hub_model()), ["manifest.json", "pull.lock", "second.gguf"]);
    let path = place.write("no model.gguf", &gguf());
    assert!(place.refusal(&hub_model(), Some(&path)).contains("its name"));
    let path = place.write("third.gguf", b"not a model");
    assert!(place.refusal(&hub_model(), Some(&path)).contains("GGUF"));
    place.models.verify(&hub_model(), &mut |_| ()).unwrap();
}

#[test]
fn files_of_one_repository_are_models_of_their_own() {
    let place = Place::new();
    let bytes = |value: u32| Synthetic::new().with("a", Value::U32(value)).bytes();
    let names = ["hf:owner/name/a.gguf", "hf:owner/name/b.gguf", "hf:owner/name/in/a.gguf", "hf:owner/name"];
    let names = names.map(|name| name.parse::<ModelName>().unwrap());
    for (name, value) in names.iter().zip(0..) {
        let path = place.write("some.gguf", &bytes(value));
        place.pull(name, Some(&path)).unwrap();
    }
    for (name, value) in names.iter().zip(0..) {
        assert_eq!(place.models.stored(name).unwrap().name, name.to_string());
        let path = place.models.file(name, ".gguf").unwrap().path;
        assert_eq!(std::fs::read(path).unwrap(), bytes(value), "{name}");
    }
    // A folder under another model's name is not that model.
    let other: ModelName = "hf:owner/name/c.gguf".parse().unwrap();
    let folder = |name: &ModelName| place.models.folder().join(name.folder());
    std::fs::rename(folder(&names[0]), folder(&other)).unwrap();
    assert!(matches!(place.models.stored(&other), Err(Error::NotPulled { .. })));
}

#[test]
fn a_pull_keeps_the_packed_form_of_its_own_file_alone() {
    let place = Place::new();
    let name = hub_model();
    let model = |changed: u8| {
        let mut file = tiny::file();
        file.tensors[0].3[0] = changed;
        place.write("tiny.gguf", &file.bytes())
    };
    let folder = place.models.folder().join(name.folder());
    let pulled = |path: &Path| {
        place.pull(&name, Some(path)).unwrap();
        let left = place.left(&name);
        Model::open(&place.models.file(&name, ".gguf").unwrap(), &folder).unwrap();
        left.into_iter().filter(|name| name.ends_with(".q8")).count()
    };
    let first = model(1);
    assert_eq!(pulled(&first), 0);
    assert_eq!(pulled(&first), 1, "the same bytes need not be packed again");
    assert_eq!(pulled(&model(2)), 0);
    assert_eq!(pulled(&model(2)), 1);
}
