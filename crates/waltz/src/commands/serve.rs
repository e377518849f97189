//! `waltz serve`.

mod opening;
mod switch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use waltz_exchange::release::ReleaseKind;
use waltz_gateway::signer::Signer;
use waltz_gateway::variants::learn;
use waltz_gateway::{Gateway, Live};
use waltz_store::Store;

use super::fallback::Fallback;
use super::{ConfigOptions, Exit, base_folder, configured_in_steps, describe, note, note_stage, runtime};
use crate::config::gate::Gate;
use crate::config::{Built, Sources, build, load, raw};
use crate::memory;
use crate::telemetry::{self, Exporter};
use opening::Opening;
use switch::Switch;

/// Run the gateway.
///
/// Without a configuration it listens on 127.0.0.1:8787 and keeps its data in the user's data folder.
/// With OPENAI_API_KEY set and no upstream configured it answers from OpenAI; with neither, from a small
/// language model in this process, which the first start pulls. SIGTERM finishes open exchanges and exits.
#[derive(clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    options: ConfigOptions,
    /// Address and port; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    fallback: Fallback,
}

/// When a file was last written and how long it is; `None` when it cannot be read.
type Stamp = Option<(SystemTime, u64)>;

/// Sent for a write past the limit on file sizes; the same number on Linux and macOS.
const SIGXFSZ: i32 = 25;

/// How often the files are looked at for changes.
const WATCH: Duration = Duration::from_millis(500);

impl Serve {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let mut sources = self.options.sources();
        if let Some(listen) = self.listen {
            sources.arguments.push(("server.listen", toml::Value::String(listen.to_string())));
        }
        start_logging(&sources);
        runtime()?.block_on(serve(sources, self.fallback))
    }
}

async fn serve(mut sources: Sources, fallback: Fallback) -> Result<(), Exit> {
    let (stamped, switch) = (stamps(&sources), Switch::new(&sources));
    fallback.settle(&mut sources).await?;
    let (loaded, built) = configured_in_steps(&sources)?;
    let Built { listen, data_dir, drain_timeout, store, live, stage_trouble: _ } = built;
    // A file size limit must show as a failed write, which is handled, and not as a signal that kills.
    let _file_size = signal(SignalKind::from_raw(SIGXFSZ)).context("cannot wait for SIGXFSZ")?;
    let store = Store::open(store)
        .await
        .with_context(|| format!("cannot open the store in `{}`", data_dir.display()))?;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}; `--listen 127.0.0.1:0` takes a free port"))?;
    let admin = admin_token(&data_dir)?;
    let address = listener.local_addr().context("cannot read the address")?;
    // What is wrong with the settings was said with the rest of the configuration.
    let (exporter, traces) = telemetry::read(&sources.environment).0.map(Exporter::new).unzip();
    let signer = Signer::new(store.secret().await.context("cannot read the secret of the store")?);
    let gateway = Gateway::new(live, store, (admin, signer), traces.flatten());
    let telemetry = exporter.map(|exporter| exporter.start(&gateway));
    // What was learned and paused holds from the first request on.
    gateway.refresh().await.context("cannot read the variants")?;
    let mut opening = Opening::new();
    opening.attempt(&gateway).await;
    gateway.tasks.spawn(learn::watch(Arc::clone(&gateway)));
    gateway.tasks.spawn(learn::run(Arc::clone(&gateway), data_dir.clone()));
    warm(&gateway, loaded.raw.judge.neural == raw::Neural::On);
    // Whoever reads the next line may stop us at once: the signals must be waited for before it is said.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    memory::hand_back();
    note(&format!("waltz is listening on http://{address}/v1 (data in {})", data_dir.display()));
    gateway.tasks.spawn(watch_files(Arc::clone(&gateway), sources, (stamped, switch, opening), address));
    let stopping = Arc::clone(&gateway);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = async { while !stops_at_hangup(hangup.recv().await) {} } => {}
        }
        note("stopping: open exchanges are being finished");
        stopping.draining.cancel();
    });
    let finished = waltz_gateway::serve(listener, Arc::clone(&gateway), drain_timeout).await;
    let closed = gateway.store.close().await.context("cannot close the store");
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    closed?;
    if !finished {
        return Err(Exit {
            code: 1,
            message: "some exchanges did not finish in time and were cut off".to_owned(),
        });
    }
    Ok(())
}

/// Whether SIGHUP stops the gateway. It does where a terminal was closed; a service is told by it to read its files
/// again, which it does by itself.
fn stops_at_hangup(_signal: Option<()>) -> bool {
    let at_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
    if !at_terminal {
        note("SIGHUP: files that change are read again by themselves");
    }
    at_terminal
}

/// Loads models in this process before the first request wants them.
fn warm(gateway: &Arc<Gateway>, with_judge: bool) {
    let live = gateway.live.load_full();
    tokio::spawn(async move {
        if with_judge
            && let Some(neural) = &live.neural
            && let Err(reason) = neural.warm().await
        {
            tracing::error!(reason, "the neural judge cannot be loaded");
        }
    });
    for upstream in &gateway.live.load().upstreams {
        if let Some(model) = upstream.local_model().cloned() {
            let name = upstream.name().to_owned();
            tokio::spawn(async move {
                if let Err(reason) = model.warm().await {
                    tracing::error!(upstream = %name, reason, "the model cannot be loaded");
                }
            });
        }
    }
}

fn start_logging(sources: &Sources) {
    let wanted =
        sources.environment.iter().find(|(name, _)| name == "WALTZ_LOG").map(|(_, value)| value.as_str());
    let filter = tracing_subscriber::EnvFilter::new(wanted.unwrap_or("warn,waltz=info"));
    // A log that cannot be written must not stop anything: telling so on the same stream would panic.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Whatever reads the log of a service wants JSON; a person at a terminal does not.
    let started = if terminal { builder.try_init() } else { builder.json().try_init() };
    if started.is_err() {
        note("warning: logging was started already");
    }
}

/// The digest of the admin token. The first start makes the token and shows it once.
fn admin_token(data_dir: &Path) -> Result<[u8; 32], Exit> {
    let file = data_dir.join("admin_token.sha256");
    match std::fs::read_to_string(&file) {
        Ok(text) => build::digest(text.trim()).ok_or_else(|| Exit {
            code: 1,
            message: format!("`{}` is damaged; delete it to get a new admin token", file.display()),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let secret: [u8; 24] = rand::random();
            let token: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            let token = format!("waltz_admin_{token}");
            let digest = waltz_exchange::id::sha256(token.as_bytes());
            write_private(&file, &waltz_exchange::id::sha256_hex(token.as_bytes()))
                .with_context(|| format!("cannot write `{}`", file.display()))?;
            note(&format!("admin token, shown this once: {token}"));
            Ok(digest)
        }
        Err(error) => Err(Exit { code: 1, message: format!("cannot read `{}`: {error}", file.display()) }),
    }
}

fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut handle = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()
}

/// Reads the configuration, the rules and the adapters again when a file changes. What is wrong is said and the
/// running configuration stays. What is known of the files was taken before the running configuration was read, so
/// that no change in between is missed.
async fn watch_files(
    gateway: Arc<Gateway>,
    sources: Sources,
    (mut known, mut switch, mut opening): (Vec<Stamp>, Switch, Opening),
    bound: SocketAddr,
) {
    let began_empty = is_empty(&sources);
    loop {
        tokio::select! {
            () = gateway.draining.cancelled() => return,
            () = tokio::time::sleep(WATCH) => {}
        }
        let present = stamps(&sources);
        if present == known {
            switch.write(&gateway).await;
            opening.attempt(&gateway).await;
            continue;
        }
        // An editor may be in the middle of writing: a file is read once it has stayed as it is.
        tokio::time::sleep(WATCH / 5).await;
        if stamps(&sources) != present {
            continue;
        }
        known = present;
        // Whatever else is wrong with the file, and before anything that waits for a database.
        switch.pause(&gateway, &sources);
        switch.write(&gateway).await;
        let live = gateway.live.load_full();
        let had_keys = !live.settings.keys.is_empty();
        let base = base_folder(&sources);
        let again = sources.clone();
        let served = live.upstreams.iter().filter_map(|upstream| upstream.local_model());
        let judging = live.neural.iter().map(|neural| neural.model());
        let models: Vec<_> = served.chain(judging).cloned().collect();
        let building = tokio::task::spawn_blocking(move || {
            build::in_steps(&load(&again), &again.environment, &base, &models)
        });
        let built = tokio::select! {
            () = gateway.draining.cancelled() => return,
            built = building => built,
        };
        // Until it is known to be sound.
        gateway.outdated.store(true, Ordering::Relaxed);
        match built {
            // A reload never opens to anybody what keys protect: neither a public socket nor one behind a proxy.
            Ok(Ok(built)) if built.live.settings.keys.is_empty() && had_keys => {
                note(&format!(
                    "configuration not reloaded, the old one stays: it has no `[[keys]]` any more, and {bound} would \
                     serve anybody; restart if that is meant"
                ));
            }
            // Nor does it leave nothing to serve: a file that is being written is empty for a moment.
            Ok(Ok(built)) if built.live.upstreams.is_empty() || (is_empty(&sources) && !began_empty) => {
                note(
                    "configuration not reloaded, the old one stays: the file is empty or names no upstream; \
                     restart if that is meant",
                );
            }
            // Nor does it lose trained weights that serve to ones that cannot.
            Ok(Ok(Built { stage_trouble: Some(reason), .. })) if has_weights(&live) => {
                note(&format!(
                    "configuration not reloaded, the old one stays: stage 2 is asked for, and {reason}; \
                     `waltz.stage = 1` goes back to the base"
                ));
            }
            Ok(Ok(built)) => {
                note_stage(&built);
                if bound.port() != built.listen.port() && built.listen.port() != 0 {
                    note("warning: `server.listen` changed; it takes effect at the next start");
                }
                gateway.live.store(Arc::new(built.live));
                warm(&gateway, load(&sources).raw.judge.neural == raw::Neural::On);
                gateway.outdated.store(false, Ordering::Relaxed);
                memory::hand_back();
                note("configuration reloaded");
                switch.resume(&gateway, &sources);
                switch.write(&gateway).await;
                opening = Opening::new();
                opening.attempt(&gateway).await;
            }
            Ok(Err(mistakes)) => {
                note(&format!("configuration not reloaded, the old one stays: {}", describe(&mistakes)))
            }
            Err(error) => note(&format!("configuration not reloaded: {error}")),
        }
    }
}

/// Whether trained weights are on their way or serve.
fn has_weights(live: &Live) -> bool {
    live.candidate.as_ref().is_some_and(|candidate| candidate.settings.stage == 2)
}

/// Whether the configuration file is there and says nothing.
fn is_empty(sources: &Sources) -> bool {
    let text = sources.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.is_some_and(|text| text.trim().is_empty())
}

/// When the files that make up the configuration were last written, and how long they are.
fn stamps(sources: &Sources) -> Vec<Stamp> {
    let base = base_folder(sources);
    let raw = load(sources).raw;
    let released = |kind| build::candidate_files(&raw, kind).map(|file| base.join(file));
    let gates = released(ReleaseKind::Weights).map(|file| Gate::beside(&file));
    let named = raw.policy.rules_file.iter().chain(&raw.judge.weights).map(|file| base.join(file));
    let kinds = [ReleaseKind::Weights, ReleaseKind::Policy, ReleaseKind::Judge];
    let named = named.chain(kinds.into_iter().flat_map(released)).chain(gates);
    let files: Vec<PathBuf> = sources.file.iter().cloned().chain(named).collect();
    files
        .iter()
        .map(|file| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}
