//! Models from the Hugging Face hub, over plain HTTPS: ask which files there are, fetch one, and go on where an
//! earlier try ended. The hub names the SHA-256 of large files, which is then checked.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use http::header::{CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

use super::PullSettings;
use super::ask::{Answer, Asker};
use crate::catalogue::is_name;
use crate::models::{Locked, Watch, check_hash, check_size, hex};
use crate::{Error, ModelName, Progress, Step, StoredFile};

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a ModelName,
    pub(super) owner: &'a str,
    pub(super) repository: &'a str,
    pub(super) file: Option<&'a str>,
}

/// How often a broken download is taken up again.
const TRIES: usize = 4;
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// The longest list of files that is read.
const MAX_LIST: usize = 4 << 20;

/// Fetches the file that is wanted and returns its address; it is left as a part.
pub(super) fn fetch(
    locked: &Locked,
    wanted: &Wanted<'_>,
    settings: &PullSettings,
    watch: Watch<'_>,
) -> Result<(String, StoredFile), Error> {
    let fail = |reason: String| Error::Fetch { name: wanted.name.clone(), reason };
    let (asker, hub) = Asker::new(settings).map_err(fail)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let file = match wanted.file {
            Some(file) => file.to_owned(),
            None => choose(&asker, wanted, &hub).await.map_err(fail)?,
        };
        let Wanted { owner, repository, .. } = wanted;
        let address = format!("{hub}/{owner}/{repository}/resolve/main/{file}");
        let name = file.rsplit('/').next().unwrap_or(&file);
        let mut download = Download::open(locked, name)?;
        let mut tried = 0;
        loop {
            tried += 1;
            match download.run(&asker, &address, watch).await {
                Ok(()) => break,
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Refused(reason)) => return Err(fail(reason)),
                // What came so far is kept, for the next try or the next pull.
                Err(Broken::Cut(reason)) if tried == TRIES => {
                    let kept = download.done;
                    return Err(fail(format!(
                        "{reason}, {TRIES} times; {kept} bytes are kept for the next pull"
                    )));
                }
                Err(Broken::Cut(_)) => {}
            }
        }
        Ok((address, download.finish(name)?))
    })
}

/// The list of a repository's files.
#[derive(Deserialize)]
struct Repository {
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Chooses the GGUF file of a repository: its only one, or its only one in Q8_0.
async fn choose(asker: &Asker<'_>, wanted: &Wanted<'_>, hub: &str) -> Result<String, String> {
    let Wanted { owner, repository, .. } = wanted;
    let mut answer =
        get(asker, &format!("{hub}/api/models/{owner}/{repository}"), &HeaderMap::new()).await?.0;
    let mut text = Vec::new();
    while let Some(bytes) = answer.next().await? {
        text.extend_from_slice(&bytes);
        if text.len() > MAX_LIST {
            return Err(format!("the hub's list of files is longer than {MAX_LIST} bytes"));
        }
    }
    let listed: Repository = serde_json::from_slice(&text)
        .map_err(|error| format!("the hub's list of files cannot be read: {error}"))?;
    let names = listed.siblings.into_iter().map(|sibling| sibling.rfilename);
    let found: Vec<String> =
        names.filter(|name| name.ends_with(".gguf") && name.split('/').all(is_name)).collect();
    let eight: Vec<&String> = found.iter().filter(|name| name.to_lowercase().contains("q8_0")).collect();
    match (found.as_slice(), eight.as_slice()) {
        ([only], _) => Ok(only.clone()),
        (_, [only]) => Ok((*only).clone()),
        ([], _) => Err("the repository has no GGUF file".to_owned()),
        _ => Err(format!("the repository has several GGUF files, name one of them: {}", found.join(", "))),
    }
}

/// Why a download stopped.
enum Broken {
    /// On this machine: it makes no sense to go on.
    Final(Error),
    /// The hub will not give it.
    Refused(String),
    /// The connection broke: going on may help.
    Cut(String),
}

/// A file on its way, and what of it is here already.
struct Download {
    part: PathBuf,
    /// The version of the file that the part is of.
    tag: PathBuf,
    file: File,
    hasher: Sha256,
    done: u64,
    total: Option<u64>,
    sha256: Option<String>,
}

impl Download {
    /// Takes up the part that an earlier try left.
    fn open(locked: &Locked, name: &str) -> Result<Self, Error> {
        let part = locked.part(name);
        let tag = locked.folder().join(format!("{name}.part.tag"));
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&part);
        let mut file = opened.map_err(Error::file("open", &part))?;
        let mut hasher = Sha256::new();
        let done = std::io::copy(&mut file, &mut Hashing(&mut hasher)).map_err(Error::file("read", &part))?;
        Ok(Self { part, tag, file, hasher, done, total: None, sha256: None })
    }

    async fn run(&mut self, asker: &Asker<'_>, address: &str, watch: Watch<'_>) -> Result<(), Broken> {
        let known = std::fs::read_to_string(&self.tag).ok().filter(|_| self.done > 0);
        let mut headers = HeaderMap::new();
        let range = HeaderValue::try_from(format!("bytes={}-", self.done));
        if let (Some(Ok(tag)), Ok(range)) = (known.map(HeaderValue::try_from), range) {
            headers.insert(IF_RANGE, tag);
            headers.insert(RANGE, range);
        }
        let (mut answer, linked) = get(asker, address, &headers).await.map_err(Broken::Cut)?;
        let status = answer.status();
        match status {
            StatusCode::PARTIAL_CONTENT if continues(answer.headers(), self.done) => {}
            StatusCode::OK => self.restart().map_err(Broken::Final)?,
            // The part is longer than the file, or of another one.
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                self.restart().map_err(Broken::Final)?;
                return Err(Broken::Cut(format!("the hub cannot go on after {} bytes", self.done)));
            }
            _ if status.is_server_error() => return Err(Broken::Cut(format!("the hub answered {status}"))),
            _ => return Err(Broken::Refused(format!("the hub answered {status} for {address}"))),
        }
        self.total = answer.length().map(|rest| self.done + rest);
        self.sha256 = linked;
        if let Some(tag) = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()) {
            std::fs::write(&self.tag, tag)
                .map_err(|error| Broken::Final(Error::file("write", &self.tag)(error)))?;
        }
        while let Some(bytes) = answer.next().await.map_err(Broken::Cut)? {
            let written = self.file.write_all(&bytes);
            written.map_err(|error| Broken::Final(Error::file("write", &self.part)(error)))?;
            self.hasher.update(&bytes);
            self.done += bytes.len() as u64;
            watch(Progress { step: Step::Download, done: self.done, total: self.total });
        }
        match self.total {
            Some(total) if self.done < total => Err(Broken::Cut("the connection ended early".to_owned())),
            _ => Ok(()),
        }
    }

    fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::file("write", &self.part))?;
        self.file.seek(SeekFrom::Start(0)).map_err(Error::file("write", &self.part))?;
        self.hasher = Sha256::new();
        self.done = 0;
        Ok(())
    }

    /// Checks what came. A wrong file is removed, so that the next pull does not go on with it.
    fn finish(self, name: &str) -> Result<StoredFile, Error> {
        self.file.sync_all().map_err(Error::file("write", &self.part))?;
        std::fs::remove_file(&self.tag).ok();
        let found = hex(self.hasher);
        let size = check_size(&self.part, self.total.unwrap_or(self.done), self.done);
        let checked =
            size.and_then(|()| check_hash(&self.part, self.sha256.as_deref().unwrap_or(&found), &found));
        if checked.is_err() {
            std::fs::remove_file(&self.part).ok();
        }
        checked.map(|()| StoredFile { name: name.to_owned(), bytes: self.done, sha256: found })
    }
}

/// Gets an address and follows redirects; also returns the SHA-256 that the hub names on the way.
async fn get(
    asker: &Asker<'_>,
    address: &str,
    headers: &HeaderMap,
) -> Result<(Answer, Option<String>), String> {
    let mut url = Url::parse(address).map_err(|error| format!("`{address}` is no address: {error}"))?;
    let mut sha256 = None;
    for _ in 0..=MAX_REDIRECTS {
        let answer = asker.get(&url, headers).await?;
        let linked = answer.headers().get("x-linked-etag").and_then(|tag| tag.to_str().ok());
        let linked = linked.map(|tag| tag.trim_matches('"').to_lowercase());
        sha256 = linked
            .filter(|tag| tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .or(sha256);
        if !answer.status().is_redirection() {
            return Ok((answer, sha256));
        }
        let next = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let next = next.and_then(|location| url.join(location).ok());
        let next = next.ok_or_else(|| format!("{url} redirects to no address"))?;
        if url.scheme() == "https" && next.scheme() != "https" {
            return Err(format!("{url} redirects to an address without TLS"));
        }
        url = next;
    }
    Err(format!("{address} redirects more than {MAX_REDIRECTS} times"))
}

/// Whether a part of a file begins where ours ends.
fn continues(headers: &HeaderMap, done: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {done}-")))
}

/// Hashes what is written to it.
struct Hashing<'a>(&'a mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
