//! Draws the state.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout},
    style::{Modifier, Style},
    text::Text,
    widgets::{Cell, Paragraph, Row as Line, Table, TableState},
};

use super::state::{Column, Row, State};

pub(crate) fn draw(state: &State, frame: &mut Frame<'_>) {
    let layout = Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]);
    let [head, body, foot] = layout.areas(frame.area());
    let (sent, received) = state.rates();
    let mark = if state.paused { "  PAUSED" } else { "" };
    let summary = format!(
        "{} sessions  out {}/s  in {}/s  memory {}{mark}",
        state.count,
        bytes(sent),
        bytes(received),
        bytes(state.memory as f64)
    );
    frame.render_widget(Paragraph::new(summary).style(Style::new().add_modifier(Modifier::BOLD)), head);

    let header = Column::ALL.map(|column| {
        let arrow = if state.descending { " v" } else { " ^" };
        let title = format!("{}{}", column.title(), if column == state.sort { arrow } else { "" });
        cell(column, title)
    });
    let rows =
        state.rows.iter().map(|row| Line::new(Column::ALL.map(|column| cell(column, text(row, column)))));
    let widths = Column::ALL.map(|column| match column {
        Column::Peer => Constraint::Min(21),
        Column::Conv => Constraint::Length(10),
        _ => Constraint::Length(9),
    });
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(rows, widths)
        .header(Line::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .row_highlight_style(reversed);
    let mut selected = TableState::new().with_selected((!state.rows.is_empty()).then_some(state.selected));
    frame.render_stateful_widget(table, body, &mut selected);

    let keys = "left/right: sort by  r: reverse  up/down: select  p: pause  q: quit";
    let foot_text = state.ended.as_deref().unwrap_or(keys);
    frame.render_widget(Paragraph::new(foot_text), foot);
}

/// Numbers stand below each other by their last digits.
fn cell(column: Column, text: String) -> Cell<'static> {
    let alignment = if column == Column::Peer { Alignment::Left } else { Alignment::Right };
    Cell::from(Text::from(text).alignment(alignment))
}

fn text(row: &Row, column: Column) -> String {
    match column {
        Column::Peer => row.peer.to_string(),
        Column::Conv => format!("{:08x}", row.conv),
        Column::Sent => bytes(row.sent),
        Column::Received => bytes(row.received),
        Column::Rtt => format!("{:.1}", row.rtt),
        Column::Loss => format!("{:.1}", row.loss),
        Column::Resent => row.resent.to_string(),
        Column::Recovered => row.recovered.to_string(),
        Column::Memory => bytes(row.memory as f64),
    }
}

/// With three digits or so.
fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut rest = count;
    let mut unit = 0;
    while rest >= 999.5 && unit + 1 < UNITS.len() {
        rest /= 1e3;
        unit += 1;
    }
    if unit == 0 { format!("{rest:.0} B") } else { format!("{rest:.1} {}", UNITS[unit]) }
}
