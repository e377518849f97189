//! `waltz mock`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use tokio::net::TcpListener;
use waltz_train::evaluate::scenarios;

use super::{Exit, note, print, runtime};
use crate::mock::script::Script;

/// Run a scripted OpenAI upstream: stream, stall, cut, fail, refuse.
///
/// Without a script it echoes, refuses "kill a ...", and drafts something unsafe about weapons, so that
/// coaching can be seen. The address goes to standard output. `GET /_mock/requests` shows what it got.
#[derive(clap::Args)]
pub(crate) struct Mock {
    /// Loopback address and port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8788", value_name = "ADDR")]
    listen: SocketAddr,
    /// The script, a TOML file of [[reply]] tables; see docs/reference/mock.md.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Draft and revise as the fifty scenarios of `waltz eval --suite scenarios` script it.
    #[arg(long, conflicts_with = "script")]
    scenarios: bool,
}

impl Mock {
    pub(crate) fn run(self) -> Result<(), Exit> {
        if !self.listen.ip().is_loopback() {
            return Err(Exit {
                code: 2,
                message: "--listen must be a loopback address: the mock is for tests".into(),
            });
        }
        let script = match &self.script {
            None if self.scenarios => Script::scenarios(&scenarios().map_err(anyhow::Error::from)?),
            None => Script::builtin(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read the script `{}`", file.display()))?;
                Script::parse(&text).map_err(|error| Exit {
                    code: 2,
                    message: format!("the script `{}` is not right: {error}", file.display()),
                })?
            }
        };
        runtime()?.block_on(async {
            let listener = TcpListener::bind(self.listen)
                .await
                .with_context(|| format!("cannot listen on {}", self.listen))?;
            let address = listener.local_addr().context("cannot read the address")?;
            print(&format!("http://{address}/v1"))?;
            note("the mock upstream is listening; it is a script, not a model");
            crate::mock::serve(listener, script).await.context("the mock stopped")?;
            Ok(())
        })
    }
}
