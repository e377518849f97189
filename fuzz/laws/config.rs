//! Laws of the configuration file: any text is understood or every mistake in it is named, and what was
//! understood reads back.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use waltz::config::{Loaded, Mistake, Sources, build, load};

/// Reads the bytes as a configuration file.
pub fn law(data: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let file = folder.path().join("waltz.toml");
    let loaded = read(&file, data);
    named(&loaded.mistakes);
    let raw = serde_json::to_value(&loaded.raw).unwrap_or_default();
    let written = toml::to_string(&loaded.raw);
    assert!(written.is_ok(), "{:?}", written.err());
    let again = read(&file, written.unwrap_or_default().as_bytes());
    assert_eq!(again.mistakes, [], "what was understood has no mistake of form");
    assert_eq!(serde_json::to_value(&again.raw).unwrap_or_default(), raw, "what was understood reads back");
    // A check compiles the screen, which is too dear for files that cannot be served. A device or a pipe
    // would be read for ever, and an operator's own file names none.
    let elsewhere = data.windows(2).any(|pair| pair == b"\"/" || pair == b"'/" || pair == b"..");
    if elsewhere || !loaded.mistakes.is_empty() {
        return;
    }
    match build(&loaded, &[("HOME".to_owned(), "/nowhere".to_owned())], folder.path(), &[]) {
        Ok(_) => safe(&raw),
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            named(&mistakes);
            secret(&raw, &mistakes);
        }
    }
}

fn read(file: &Path, bytes: &[u8]) -> Loaded {
    let written = std::fs::write(file, bytes);
    assert!(written.is_ok(), "{written:?}");
    load(&Sources { file: Some(file.to_owned()), ..Sources::default() })
}

/// Every mistake says where it is and what is wrong, once.
fn named(mistakes: &[Mistake]) {
    for (position, mistake) in mistakes.iter().enumerate() {
        assert!(!mistake.message.is_empty(), "{mistake:?}");
        assert!(!mistakes[..position].contains(mistake), "{mistake:?} is named twice");
    }
}

/// What may be served: nobody from outside without a key, and every number in its range.
fn safe(raw: &Value) {
    let listen = raw["server"]["listen"].as_str().and_then(|listen| listen.parse::<SocketAddr>().ok());
    let keys = raw["keys"].as_array().map_or(0, Vec::len);
    assert!(listen.is_some_and(|listen| listen.ip().is_loopback() || keys > 0), "{raw}");
    let number = |section: &str, key: &str| raw[section][key].as_f64().unwrap_or(f64::NAN);
    assert!((0.0..=1.0).contains(&number("waltz", "safety_threshold")), "{raw}");
    assert!((0.0..=100.0).contains(&number("waltz", "traffic_percentage")), "{raw}");
    assert!((0.0..=10.0).contains(&number("coach", "max_rounds")), "{raw}");
}

/// A key that stands where a variable's name belongs is not repeated, nor are credentials in an address.
fn secret(raw: &Value, mistakes: &[Mistake]) {
    for upstream in raw["upstreams"].as_array().into_iter().flatten() {
        let key =
            upstream["key_env"].as_str().filter(|key| key.contains(|letter: char| letter.is_lowercase()));
        let url = upstream["url"].as_str().filter(|url| url.contains('@'));
        for hidden in [key, url].into_iter().flatten().filter(|hidden| hidden.len() >= 16) {
            assert!(mistakes.iter().all(|mistake| !mistake.message.contains(hidden)), "{mistakes:?}");
        }
    }
}
