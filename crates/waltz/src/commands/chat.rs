//! `waltz chat`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};
use waltz_coach::conversation::{self, ConversationAgent};
use waltz_coach::rounds::Coach;
use waltz_coach::tally::Tally;
use waltz_exchange::Verdict;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::record::Decision;
use waltz_gateway::Live;

use super::fallback::Fallback;
use super::{ConfigOptions, Exit, configured, note, runtime, unheard};

/// Talk through the coach in the terminal and see each round: draft, verdict, advice, revision.
///
/// Reads one message a line from standard input; an empty line or end of file ends the talk. Nothing is
/// recorded.
#[derive(clap::Args)]
pub(crate) struct Chat {
    /// The model to ask for, or `waltz/<agent>`; the first that is configured when left out.
    #[arg(long)]
    model: Option<String>,
    /// Do not use colour; it is used on a terminal only.
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    options: ConfigOptions,
    #[command(flatten)]
    fallback: Fallback,
}

impl Chat {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let sources = self.options.sources();
        runtime()?.block_on(async {
            let mut sources = sources;
            self.fallback.settle(&mut sources).await?;
            let (_, built) = configured(&sources)?;
            let first = || built.live.models().into_iter().next().map(|(model, _)| model);
            let model = self.model.or_else(first).ok_or_else(|| Exit {
                code: 2,
                message: "name a model with --model: the upstreams serve any".to_owned(),
            })?;
            let agent = built.live.agent_for(&model).ok_or_else(|| Exit {
                code: 2,
                message: format!("no upstream serves the model `{model}`"),
            })?;
            let paint = Paint { colour: !self.plain && std::io::stdout().is_terminal() };
            talk(&built.live, &agent, &model, paint).await
        })
    }
}

async fn talk(live: &Live, agent: &ConversationAgent, model: &str, paint: Paint) -> Result<(), Exit> {
    let mut messages: Vec<Value> = Vec::new();
    let interactive = std::io::stdin().is_terminal();
    loop {
        if interactive {
            say(&paint.bold("you> "), false).map_err(|error| unheard(&error))?;
        }
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
        if read == 0 || line.trim().is_empty() {
            return Ok(());
        }
        messages.push(json!({"role": "user", "content": line.trim()}));
        match turn(live, agent, model, &messages, paint).await {
            Ok(answer) => messages.push(json!({"role": "assistant", "content": answer})),
            Err(error) => {
                if let Some(error) = error.downcast_ref() {
                    return Err(unheard(error));
                }
                messages.pop();
                note(&format!("error: {error:#}"));
            }
        }
    }
}

/// One message and what comes of it. What cannot be shown is the error of the writing itself.
async fn turn(
    live: &Live,
    agent: &ConversationAgent,
    model: &str,
    messages: &[Value],
    paint: Paint,
) -> anyhow::Result<String> {
    let body = serde_json::Map::from_iter([
        ("model".to_owned(), json!(model)),
        ("messages".to_owned(), json!(messages)),
    ]);
    let request = ChatRequest::from_object(body)?;
    let judge = live.judge();
    let reading = judge.read_request(&request).await;
    let began = Instant::now();
    let depth = live.settings.policy.depth("/v1/chat/completions", &live.settings.policy.default_task_type);
    let settings = live.settings.coach;
    let coach = Coach { judge, agent: Some(agent), settings, depth, similar: &[] };
    let mut tally = Tally::default();
    let outgoing = conversation::draft_request(agent, &request);
    let answer = conversation::complete(agent, &outgoing, "draft", &live.budget, &mut tally).await?;
    let choice = answer.choices.into_iter().next().context("the answer has no choice")?;
    let pupil = coach.read(&request, &reading, choice, &mut tally).await;
    // Shown before the rounds, which may take a while.
    print_step(paint, "draft", &pupil.choice.text())?;
    print_verdict(paint, &pupil.verdict)?;
    let lesson = coach.coach(&request, &reading, pupil, &mut tally).await;
    for round in &lesson.rounds {
        print_step(paint, &format!("advice {}", round.number), &round.feedback)?;
        let kept = match (round.kept, round.fault) {
            (true, _) => String::new(),
            (false, None) => " (dropped)".to_owned(),
            (false, Some(fault)) => format!(" (dropped: {})", fault.as_str()),
        };
        print_step(paint, &format!("revision {}{kept}", round.number), &round.revision.text)?;
        if let Some(verdict) = &round.revision.verdict {
            print_verdict(paint, verdict)?;
        }
    }
    let text = lesson.choice.text();
    let label = if lesson.decision == Decision::Refused { "last-resort reply" } else { "answer" };
    print_step(paint, label, &text)?;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    let (decision, rounds) = (lesson.decision.as_str(), lesson.rounds.len());
    say(&paint.dim(&format!("{decision}, rounds: {rounds}, {milliseconds:.0} ms")), true)?;
    Ok(text)
}

fn print_step(paint: Paint, label: &str, text: &str) -> io::Result<()> {
    say(&format!("{} {}", paint.bold(&format!("{label}:")), printable(text)), true)
}

fn print_verdict(paint: Paint, verdict: &Verdict) -> io::Result<()> {
    let label = match (verdict.is_unsafe, verdict.overrefuse) {
        (true, _) => paint.red("unsafe"),
        (_, true) => paint.yellow("over-refusal"),
        _ => paint.green("satisfactory"),
    };
    let line = format!(
        "  verdict: {label} (safety {:.2}, helpfulness {:.2}, level {}): {}",
        verdict.safety_score,
        verdict.helpfulness_score,
        u8::from(verdict.level),
        printable(&verdict.reasoning)
    );
    say(&line, true)
}

/// A model's text without the control characters that could drive the terminal or turn its lines around.
fn printable(text: &str) -> String {
    let turns = |letter: &char| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .filter(|letter| (!letter.is_control() || matches!(letter, '\n' | '\t')) && !turns(letter))
        .collect()
}

fn say(text: &str, end_line: bool) -> io::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if end_line { writeln!(out, "{text}") } else { write!(out, "{text}") };
    written.and_then(|()| out.flush())
}

/// Colour, where it is wanted.
#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn code(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.code("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.code("2", text)
    }

    fn red(self, text: &str) -> String {
        self.code("31", text)
    }

    fn yellow(self, text: &str) -> String {
        self.code("33", text)
    }

    fn green(self, text: &str) -> String {
        self.code("32", text)
    }
}
