//! A PostgreSQL server for tests and the bench, from the programs on this machine. A shell runs it and
//! waits on a pipe from this process: when this process ends, however it ends, the pipe closes, and the
//! shell stops the server and deletes its folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = r#"
trap : INT TERM
fsync=$1
cd /
folder=$(mktemp -d /tmp/waltz-postgres-XXXXXX) || exit 1
run() {
    "$0/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c "fsync=$fsync" -c max_connections=200 \
        >>"$folder/log" 2>&1 &
    server=$!
    until "$0/pg_isready" -q -h "$folder"; do
        kill -0 $server || { cat "$folder/log" >&2; rm -rf "$folder"; exit 1; }
        sleep 0.02
    done
    echo "$folder"
}
"$0/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --no-locale -N >"$folder/log" 2>&1 ||
    { cat "$folder/log" >&2; rm -rf "$folder"; exit 1; }
run
while read -r order; do
    case $order in
        start) run ;;
        *) kill "-$order" $server; wait $server; echo stopped ;;
    esac
done
kill -QUIT $server 2>/dev/null
wait
rm -rf "$folder"
"#;

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: String,
}

impl Server {
    /// Starts a server in a folder of its own. The error says what to install. Without `fsync` it is
    /// faster, and a power cut would lose what no test needs.
    pub(crate) fn start(fsync: bool) -> Result<Self, String> {
        let programs = programs()?;
        // PostgreSQL refuses to run as root.
        let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let mut command = if root { Command::new("runuser") } else { Command::new("bash") };
        if root {
            command.args(["-u", "postgres", "--", "bash"]);
        }
        command.arg("-c").arg(SCRIPT).arg(programs).arg(if fsync { "on" } else { "off" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().map_err(|error| format!("cannot run bash: {error}"))?;
        let (orders, answers) = (shell.stdin.take(), shell.stdout.take());
        let answers = BufReader::new(answers.ok_or("the shell has no output")?);
        let mut server = Self { shell, orders, answers, folder: String::new() };
        server.folder = server.answer()?;
        Ok(server)
    }

    /// The URL of a database on this server.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder)
    }

    /// Stops the server with a signal: `INT` ends all connections, `QUIT` is a crash.
    pub(crate) fn stop(&mut self, signal: &str) -> Result<(), String> {
        self.order(signal)
    }

    /// Starts the server again.
    pub(crate) fn start_again(&mut self) -> Result<(), String> {
        self.order("start")
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        let orders = self.orders.as_mut().ok_or("the shell is gone")?;
        writeln!(orders, "{order}").map_err(|error| error.to_string())?;
        self.answer().map(|_| ())
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(read) if read > 0 => Ok(line.trim().to_owned()),
            _ => Err("the PostgreSQL server did not start; its messages are above".to_owned()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}

/// The folder that holds `initdb` and `postgres`: one of the search path, or of the newest version
/// where Debian puts them.
fn programs() -> Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        folders.push(entry.path().join("bin"));
    }
    let version = |folder: &PathBuf| {
        let name = folder.parent().and_then(|parent| parent.file_name());
        name.and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok())
    };
    folders.sort_by_key(version);
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&search_path).chain(folders.into_iter().rev());
    let mut whole = listed.filter(|folder| {
        ["initdb", "postgres", "pg_isready"].iter().all(|program| folder.join(program).exists())
    });
    whole.next().ok_or_else(|| {
        "no PostgreSQL on this machine: install it (Debian and Ubuntu: `apt install postgresql`), or set \
         WALTZ_TEST_POSTGRES to the URL of a server on which databases may be created"
            .to_owned()
    })
}
