//! The live screen: drawn in place, and always restored.

use std::io::{self, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use tollgate_core::Span;

use super::rates;
use super::sampler::{Sample, Sampler};
use super::view::View;
use crate::command::words;

/// How long a key press may take to be noticed.
const GLANCE: Duration = Duration::from_millis(100);

/// Shows every sample until the user quits. Only the first one may fail: later faults are shown, and the
/// server is asked again.
pub(super) fn watch(view: &View<'_>, interval: Span, samples: &Sampler) -> anyhow::Result<()> {
    let mut before = samples.next()?;
    let ended = end_signals()?;
    let mut screen = Screen::enter()?;
    let footer = format!("every {interval}; q ends");
    let page_of = |before: &Sample, after: &Sample| view.page(&rates::between(before, after), after);
    let mut page = page_of(&before, &before);
    screen.draw(&page, &footer)?;
    while !ended.load(Ordering::Relaxed) {
        match samples.arrived() {
            Some(Ok(sample)) => {
                page = page_of(&before, &sample);
                before = sample;
                screen.draw(&page, &footer)?;
            }
            Some(Err(fault)) => screen.draw(&page, &words::plain(&fault.to_string()))?,
            None => {}
        }
        if event::poll(GLANCE)? {
            match event::read()? {
                Event::Key(key) if ends(key) => break,
                Event::Resize(..) => screen.draw(&page, &footer)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn ends(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (control_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

/// Whether the process received a signal to end. The screen is restored first.
fn end_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// The terminal while `top` uses it. Dropping it restores the terminal, on errors and panics too.
struct Screen {
    out: Stdout,
    colours: ColorChoice,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let out = io::stdout();
        let mut screen = Self { colours: AutoStream::choice(&out), out };
        terminal::enable_raw_mode()?;
        execute!(screen.out, EnterAlternateScreen, DisableLineWrap, Hide)?;
        Ok(screen)
    }

    /// Draws as much of the page as fits, and the footer on the last line.
    fn draw(&mut self, page: &str, footer: &str) -> io::Result<()> {
        let (_, height) = terminal::size()?;
        let plain = anstream::adapter::strip_str(page).to_string();
        let page = if self.colours == ColorChoice::Never { &plain } else { page };
        let last = height.saturating_sub(1);
        queue!(self.out, MoveTo(0, 0))?;
        for (row, line) in (0..last).zip(page.lines()) {
            queue!(self.out, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown), MoveTo(0, last), Print(footer))?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal cannot be restored, nothing more can be done.
        let _ = execute!(self.out, Show, EnableLineWrap, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
