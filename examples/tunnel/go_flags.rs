//! The command line as Go programs read it.
//!
//! kcptun's users write `-mode fast3 -nocomp` as well as `--mode fast3`, and Go takes what follows a flag for its value, whatever it
//! looks like. Here each flag becomes one argument `--name=value`, which clap reads in one way only.

use clap::{Arg, ArgAction, Command};

/// The same arguments in one form. The first is the program's name, the second the subcommand.
pub(crate) fn normalise(command: &Command, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut arguments = arguments.into_iter();
    let mut out: Vec<String> = arguments.by_ref().take(1).collect();
    let Some(role) = arguments.next() else { return out };
    let subcommand = command.find_subcommand(&role);
    out.push(role);
    let Some(subcommand) = subcommand else {
        out.extend(arguments);
        return out;
    };
    while let Some(argument) = arguments.next() {
        let name = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
            .filter(|name| !name.is_empty());
        let Some(name) = name else {
            // Not a flag: clap says so.
            out.push(argument);
            continue;
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let Some(flag) = subcommand.get_arguments().find(|flag| is_called(flag, name)) else {
            out.push(argument);
            continue;
        };
        let dashes = if flag.get_long().is_some() { "--" } else { "-" };
        let name = flag.get_long().map(str::to_owned).or_else(|| flag.get_short().map(String::from));
        let name = format!("{dashes}{}", name.unwrap_or_default());
        let value = if value.is_none() && takes_value(flag) { arguments.next() } else { value };
        out.push(value.map_or_else(|| name.clone(), |value| format!("{name}={value}")));
    }
    out
}

fn is_called(flag: &Arg, name: &str) -> bool {
    flag.get_long() == Some(name)
        || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        || flag.get_short().is_some_and(|short| name.chars().eq([short]))
}

/// Go's boolean flags have a value only behind `=`.
fn takes_value(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set) && !flag.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::options::Arguments;

    fn normalised(line: &str) -> String {
        let command = Arguments::command();
        normalise(&command, line.split(' ').map(str::to_owned)).join(" ")
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        assert_eq!(
            normalised(
                "tunnel client -r vps:4000 -l :8388 -mode fast3 --mtu=1200 -nocomp -ds 4 --ps 2 -c a.json"
            ),
            "tunnel client --remoteaddr=vps:4000 --localaddr=:8388 --mode=fast3 --mtu=1200 --nocomp --datashard=4 \
             --parityshard=2 -c=a.json"
        );
    }

    #[test]
    fn a_value_may_look_like_a_flag() {
        assert_eq!(normalised("tunnel server --key -nocomp -quiet"), "tunnel server --key=-nocomp --quiet");
        assert_eq!(normalised("tunnel server -nocomp=false"), "tunnel server --nocomp=false");
    }

    #[test]
    fn what_is_no_flag_is_left_to_clap() {
        for line in
            ["tunnel", "tunnel --help", "tunnel nothing -mode fast", "tunnel client stray - -unknown 5"]
        {
            assert_eq!(normalised(line), line);
        }
    }
}
