//! Contracts as a table: the seven columns of multiservice, as comma-separated values.
//!
//! ```text
//! ID,IP,Mask,BW,Shared,DSCP,Policy
//! 17,198.51.100.17,255.255.255.255,512K,20,EF,BE
//! 17,2001:db8:17::,56,512K,20,EF,BE
//! ```
//!
//! Each line is a prefix of a contract: lines with one number are one contract, and say the same of the
//! rest. A mask is a length, or four bytes. A line with the names of the columns may come first. Empty
//! lines, and lines that begin with `#`, say nothing. Fields may stand in quotation marks. (RFC 4180)
//!
//! Paper: multiservice III.2, table 3.

use crate::edge::{prefix_of, shown};
use crate::plan::{Interface, Plan};
use crate::words::MAX_LINE_BYTES;
use std::collections::HashMap;
use std::fmt::Write;
use weir_core::packet::Dscp;
use weir_core::units::{Duration, Fraction, Rate};
use weir_edge::params;
use weir_edge::sla::{Policy, Prefix};
use weir_text::number::Bad;
use weir_text::{Diagnostic, Place, Severity, Source, Trouble, number, prefix};

/// The columns.
pub const COLUMNS: [&str; 7] = ["ID", "IP", "Mask", "BW", "Shared", "DSCP", "Policy"];
/// Errors, after which reading ends.
const ERRORS: usize = 100;
/// Policies as the table and as the configuration have them.
const POLICIES: [(&str, &str); 4] = [("OK", "ok"), ("DROP", "drop"), ("BE", "be"), ("BE-FLOW", "be-flow")];

/// A field, without its quotation marks, and where it stands.
struct Field {
    text: String,
    place: Place,
}

/// What lines say of a contract beside its prefixes.
#[derive(Clone, PartialEq)]
struct Terms {
    bandwidth: Rate,
    shared: Fraction,
    dscp: Dscp,
    policy: &'static str,
}

struct Contract {
    id: u32,
    line: u32,
    terms: Terms,
    prefixes: Vec<Prefix>,
}

/// The `sla` lines of `interface` for the table `text`, which the person knows as `name`.
///
/// # Errors
/// All that is wrong with its lines, up to a hundred.
pub fn import(name: &str, text: &str, interface: &str) -> Result<Vec<String>, Vec<Diagnostic>> {
    let source = Source::new(name, text);
    let (mut contracts, mut said): (Vec<Contract>, Vec<Trouble>) = (Vec::new(), Vec::new());
    let (mut by_id, mut by_prefix) = (HashMap::new(), HashMap::new());
    let mut first = true;
    for (number, line) in (1..).zip(source.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let is_head = core::mem::take(&mut first)
            && line.trim_start().trim_start_matches('"').to_ascii_lowercase().starts_with("id");
        let read = fields(number, line).and_then(|all| {
            if is_head { head(&all).map(|()| None) } else { contract(number, &all, &mut by_prefix).map(Some) }
        });
        let entered = read.and_then(|contract| match contract {
            Some(contract) => enter(&mut contracts, &mut by_id, contract),
            None => Ok(()),
        });
        said.extend(entered.err());
        if said.len() >= ERRORS {
            break;
        }
    }
    if said.is_empty() && contracts.is_empty() {
        let help = format!("write a line for each contract: {}", COLUMNS.join(","));
        said.push(Trouble::new(Place::default(), "no contract stands here", help));
    }
    let lines: Vec<String> = contracts.iter().map(|contract| line_of(interface, contract)).collect();
    for (contract, line) in contracts.iter().zip(&lines).filter(|(_, line)| line.len() >= MAX_LINE_BYTES) {
        let message = format!("contract {} has {} prefixes", contract.id, contract.prefixes.len());
        let help = format!("its line would have {} bytes: divide it into several contracts", line.len());
        said.push(Trouble::new(Place { line: contract.line, column: 1, length: 1 }, message, help));
    }
    if !said.is_empty() {
        return Err(said.into_iter().map(|trouble| source.diagnostic(Severity::Error, trouble)).collect());
    }
    Ok(lines)
}

/// The fields of a line.
fn fields(number: u32, line: &str) -> Result<Vec<Field>, Trouble> {
    let mut fields = Vec::new();
    let mut rest = line.chars().peekable();
    let mut column = 1;
    loop {
        let start = column;
        let mut text = String::new();
        while rest.next_if(|c| *c == ' ' || *c == '\t').is_some() {
            column += 1;
        }
        if rest.next_if_eq(&'"').is_some() {
            column += 1;
            loop {
                let Some(c) = rest.next() else {
                    let place = Place { line: number, column: start, length: column - start };
                    return Err(Trouble::new(
                        place,
                        "a quotation mark is not closed",
                        "close it in its line",
                    ));
                };
                column += 1;
                if c == '"' && rest.next_if_eq(&'"').is_none() {
                    break;
                }
                column += u32::from(c == '"');
                text.push(c);
            }
        }
        while let Some(c) = rest.next_if(|c| *c != ',') {
            column += 1;
            text.push(c);
        }
        let place = Place { line: number, column: start, length: (column - start).max(1) };
        fields.push(Field { text: text.trim().to_string(), place });
        column += 1;
        if rest.next().is_none() {
            break;
        }
    }
    if fields.len() != COLUMNS.len() {
        let place = Place { line: number, column: 1, length: column - 2 };
        let count = fields.len();
        let message = format!("{count} field{}, not 7", if count == 1 { "" } else { "s" });
        let help = format!("write {}, separated by commas", COLUMNS.join(", "));
        return Err(Trouble::new(place, message, help));
    }
    Ok(fields)
}

/// The names of the columns.
fn head(fields: &[Field]) -> Result<(), Trouble> {
    let wrong = fields.iter().zip(COLUMNS).find(|(field, name)| !field.text.eq_ignore_ascii_case(name));
    wrong.map_or(Ok(()), |(field, name)| {
        let message = format!("column `{}`, where `{name}` stands", field.text);
        Err(Trouble::new(field.place, message, format!("the columns are {}", COLUMNS.join(", "))).write(name))
    })
}

fn contract(line: u32, fields: &[Field], by_prefix: &mut HashMap<Prefix, u32>) -> Result<Contract, Trouble> {
    let [id, ip, mask, bandwidth, shared, dscp, policy] = fields else {
        return Err(Trouble::new(Place { line, column: 1, length: 1 }, "not seven fields", ""));
    };
    let refuse = |field: &Field, message: String, help: &str| Trouble::new(field.place, message, help);
    let id = id.text.parse::<u32>().map_err(|_| {
        refuse(id, format!("`{}` is no ID", id.text), "write a whole number from 0 to 4294967295")
    })?;
    let prefix = prefix(ip, mask)?;
    let other = by_prefix.insert(prefix, line);
    if let Some(other) = other {
        let message = format!("`{}` stands on line {other} already", shown(&prefix));
        return Err(refuse(ip, message, "a prefix belongs to one contract: take one of these lines away"));
    }
    let bandwidth = number::rate(&bandwidth.text).map_err(|bad| refuse(bandwidth, bad.message, &bad.help))?;
    let percent = shared.text.trim_end_matches('%');
    let shared = number::percent(percent).map_err(|bad| refuse(shared, bad.message, &bad.help))?.value;
    let of_name = Dscp::from_name(&dscp.text);
    let of_number = || dscp.text.parse().ok().and_then(Dscp::new).filter(|dscp| dscp.name().is_some());
    let dscp = of_name.or_else(of_number).ok_or_else(|| {
        let help = "write a name as EF, VA, AF41 or CS5, or its number";
        refuse(dscp, format!("`{}` is no code point with a name", dscp.text), help)
    })?;
    let known = POLICIES.iter().find(|(table, _)| table.eq_ignore_ascii_case(&policy.text));
    let policy = known.map(|(_, word)| *word).ok_or_else(|| {
        let help = "write OK (they pass), DROP, BE (best effort) or BE-FLOW";
        let near = weir_text::nearest(&policy.text.to_ascii_uppercase(), POLICIES.map(|(table, _)| table));
        let mut trouble = refuse(policy, format!("`{}` is no policy", policy.text), help);
        trouble.replacement = near.map(str::to_string);
        trouble
    })?;
    Ok(Contract { id, line, terms: Terms { bandwidth, shared, dscp, policy }, prefixes: vec![prefix] })
}

fn prefix(ip: &Field, mask: &Field) -> Result<Prefix, Trouble> {
    let at = |field: &Field, bad: Bad| Trouble::new(field.place, bad.message, &bad.help);
    let address = prefix::address(&ip.text).map_err(|bad| at(ip, bad))?;
    let length = prefix::mask(&mask.text, address).map_err(|bad| at(mask, bad))?;
    let read = weir_text::Prefix::new(address, length).map_err(|bad| {
        let whole = bad.write.clone().unwrap_or_default();
        at(ip, bad).write(whole.split('/').next().unwrap_or_default())
    })?;
    Ok(prefix_of(read))
}

/// A line's contract goes with those of its number.
fn enter(all: &mut Vec<Contract>, by_id: &mut HashMap<u32, usize>, new: Contract) -> Result<(), Trouble> {
    let index = *by_id.entry(new.id).or_insert(all.len());
    let Some(old) = all.get_mut(index) else {
        all.push(new);
        return Ok(());
    };
    if old.terms != new.terms {
        let place = Place { line: new.line, column: 1, length: 1 };
        let message = format!("contract {} has other terms on line {}", new.id, old.line);
        return Err(Trouble::new(place, message, "say the same of it, or give this line another ID"));
    }
    old.prefixes.extend(new.prefixes);
    Ok(())
}

fn line_of(interface: &str, contract: &Contract) -> String {
    let Contract { id, terms, prefixes, .. } = contract;
    let prefixes: Vec<String> = prefixes.iter().map(shown).collect();
    let shared = number::shortest(terms.shared.raw(), 100);
    let mut line =
        format!("sla {interface} {id} {} bw {} shared {shared}", prefixes.join(","), terms.bandwidth);
    if terms.dscp != Dscp::EF {
        // Writes to a `String` cannot fail.
        let _ = write!(line, " dscp {}", terms.dscp);
    }
    let _ = write!(line, " policy {}", terms.policy);
    line
}

/// A contract as it is shown.
#[derive(Clone, Debug)]
pub struct Row {
    /// The interface by which its packets enter.
    pub interface: String,
    /// Its number.
    pub id: u32,
    /// Its prefixes, as altq.conf has them.
    pub prefixes: Vec<String>,
    /// Its bandwidth.
    pub bandwidth: Rate,
    /// The share that its flows compete for, in percent as it is typed.
    pub shared: String,
    /// The code point of packets in profile.
    pub dscp: Dscp,
    /// What becomes of the others, as altq.conf has it.
    pub policy: &'static str,
    /// Its class; none: the first that is allocated.
    pub class: Option<String>,
    /// The silence that ends a flow; none: its class says it.
    pub timeout: Option<Duration>,
    /// Most flows at a time.
    pub flows: u32,
}

/// The contracts of a configuration, in its order.
pub fn rows(plan: &Plan) -> Vec<Row> {
    let all = plan.interfaces.iter().flat_map(|on| on.slas.iter().map(move |sla| (on, sla)));
    all.map(|(interface, sla)| {
        let contract = params::contract(sla.id, sla.dscp, 0, &sla.options.params());
        Row {
            interface: interface.name.clone(),
            id: sla.id,
            prefixes: sla.prefixes.iter().map(shown).collect(),
            bandwidth: Rate::from_bps(contract.bandwidth_bps),
            shared: number::shortest(contract.shared.raw(), 100),
            dscp: sla.dscp,
            policy: match contract.policy {
                Policy::Ok => "ok",
                Policy::Drop => "drop",
                Policy::BestEffort => "be",
                Policy::FlowBestEffort => "be-flow",
            },
            class: sla.class.clone(),
            timeout: contract.timeout,
            flows: contract.flows,
        }
    })
    .collect()
}

/// The contracts of a configuration as a table, and what the table has no column for.
pub fn export(plan: &Plan) -> (String, Vec<String>) {
    let mut table = COLUMNS.join(",") + "\n";
    for row in rows(plan) {
        let policy = POLICIES.iter().find(|(_, word)| *word == row.policy).map_or("", |(table, _)| table);
        for (address, length) in row.prefixes.iter().filter_map(|prefix| prefix.split_once('/')) {
            let Row { id, bandwidth, shared, dscp, .. } = &row;
            // Writes to a `String` cannot fail.
            let _ = writeln!(table, "{id},{address},{length},{bandwidth},{shared},{dscp},{policy}");
        }
    }
    let all = plan.interfaces.iter().flat_map(|on| on.slas.iter().map(move |sla| (on, sla)));
    (table, all.filter_map(|(interface, sla)| left_out(interface, sla)).collect())
}

/// What is said of a contract that has no column.
fn left_out(interface: &Interface, sla: &crate::plan::Sla) -> Option<String> {
    let has_column = |name: &str| ["bw", "shared", "policy"].contains(&name);
    let rest =
        sla.options.iter().filter(|option| !has_column(option.spec.name)).map(crate::plan::Given::text);
    let rest = rest.chain(sla.guessed_dscp.iter().map(|guessed| format!("guessed-dscp {guessed}")));
    let words: Vec<String> = rest.chain(sla.class.iter().map(|class| format!("class {class}"))).collect();
    (!words.is_empty()).then(|| format!("contract {} of {}: {}", sla.id, interface.name, words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use weir_core::Random;
    use weir_core::sched::Registry;

    fn lines(text: &str) -> Vec<String> {
        import("t.csv", text, "lan0").unwrap()
    }

    fn said(text: &str) -> Vec<String> {
        let all = import("t.csv", text, "lan0").unwrap_err();
        all.iter().map(|d| format!("{}:{} {} / {}", d.line, d.column, d.message, d.help)).collect()
    }

    #[test]
    fn a_table_comes_to_lines() {
        let table = "\u{feff}ID,IP,Mask,BW,Shared,DSCP,Policy\r\n# offices\n\n\
                     17, 198.51.100.17 ,255.255.255.255,512K,20%,ef,be\n\
                     18,10.0.8.0,/24,4M,100,44,\"DROP\"\n17,2001:db8:17::,56,512K,20,46,BE\n19,0.0.0.0,0,1,0,EF,ok\n";
        assert_eq!(
            lines(table),
            [
                "sla lan0 17 198.51.100.17/32,2001:db8:17::/56 bw 512K shared 20 policy be",
                "sla lan0 18 10.0.8.0/24 bw 4M shared 100 dscp VA policy drop",
                "sla lan0 19 0.0.0.0/0 bw 1 shared 0 policy ok",
            ]
        );
    }

    /// Every mistake, with its place and what was expected.
    #[test]
    fn what_is_wrong_is_said_at_its_field() {
        let good = ["17", "10.0.0.0", "24", "1M", "20", "EF", "BE"];
        let with = |column: usize, text: &str| {
            let mut fields = good;
            fields[column] = text;
            said(&fields.join(",")).join("; ")
        };
        for (column, text, expected) in [
            (0, "x", "1:1 `x` is no ID / write a whole number from 0 to 4294967295"),
            (0, "4294967296", "1:1 `4294967296` is no ID / write a whole number from 0 to 4294967295"),
            (1, "10.0.0", "1:4 `10.0.0` is no address / write one, as 198.51.100.17 or 2001:db8::1"),
            (1, "10.0.0.1", "1:4 `10.0.0.1/24` has bits beyond its length / the prefix is `10.0.0.0/24`"),
            (2, "33", "1:13 `33` is no mask / write a length from 0 to 32, or four bytes as 255.255.255.0"),
            (
                2,
                "255.0.255.0",
                "1:13 `255.0.255.0` has ones behind zeros / write a length from 0 to 32, or four bytes as 255.255.255.0",
            ),
            (2, "", "1:13 `` is no mask / write a length from 0 to 32, or four bytes as 255.255.255.0"),
            (
                5,
                "XX",
                "1:22 `XX` is no code point with a name / write a name as EF, VA, AF41 or CS5, or its number",
            ),
            (
                5,
                "3",
                "1:22 `3` is no code point with a name / write a name as EF, VA, AF41 or CS5, or its number",
            ),
            (6, "DORP", "1:25 `DORP` is no policy / write OK (they pass), DROP, BE (best effort) or BE-FLOW"),
        ] {
            assert_eq!(with(column, text), expected);
        }
        assert!(with(3, "fast").starts_with("1:16 ") && with(4, "101").starts_with("1:19 "));
        for (text, expected) in [
            (
                "",
                "0:0 no contract stands here / write a line for each contract: ID,IP,Mask,BW,Shared,DSCP,Policy",
            ),
            (
                "17,10.0.0.0",
                "1:1 2 fields, not 7 / write ID, IP, Mask, BW, Shared, DSCP, Policy, separated by commas",
            ),
            (
                "17;10.0.0.0;24",
                "1:1 1 field, not 7 / write ID, IP, Mask, BW, Shared, DSCP, Policy, separated by commas",
            ),
            ("17,\"10.0.0.0,24", "1:4 a quotation mark is not closed / close it in its line"),
            (
                "ID,IP,Mask,Shared,BW,DSCP,Policy",
                "1:12 column `Shared`, where `BW` stands / the columns are ID, IP, Mask, BW, Shared, DSCP, Policy",
            ),
            (
                "1,10.0.0.0,24,1M,0,EF,BE\n2,10.0.0.0,24,1M,0,EF,BE",
                "2:3 `10.0.0.0/24` stands on line 1 already / a prefix belongs to one contract: take one of these lines away",
            ),
            (
                "1,10.0.0.0,24,1M,0,EF,BE\n1,10.0.1.0,24,2M,0,EF,BE",
                "2:1 contract 1 has other terms on line 1 / say the same of it, or give this line another ID",
            ),
        ] {
            assert_eq!(said(text), [expected], "{text}");
        }
        let mend = import("t.csv", "1,10.0.0.1,24,1M,0,EF,BE", "lan0").unwrap_err();
        assert_eq!(mend[0].instead.as_deref(), Some("1,10.0.0.0,24,1M,0,EF,BE"));
        let many: String = (0..80).map(|n| format!("1,10.0.{n}.0,24,1M,0,EF,BE\n")).collect();
        assert_eq!(said(&many)[0].split(" / ").next(), Some("1:1 contract 1 has 80 prefixes"));
        let wrong = "x\n".repeat(1_000);
        assert_eq!(said(&wrong).len(), ERRORS);
    }

    /// T22: tables go to lines, to a plan, and back, whatever stands in them; so do as many as 10,000 rows.
    #[test]
    fn t22_tables_come_back_as_they_were() {
        let registry = Registry::builtin();
        let rounds = weir_seed::seeds(20).chain([0]).collect::<Vec<_>>();
        let last = rounds.len() - 1;
        for (n, seed) in rounds.into_iter().enumerate() {
            let mut random = Random::new(seed);
            let rows = if n == last { 10_000 } else { 1 + random.below(200) };
            let mut table = COLUMNS.join(",") + "\n";
            for row in 0..rows {
                let (ip, mask) = match random.below(2) {
                    0 => (
                        Ipv4Addr::from_bits(0x0a00_0000 + row as u32 * 256).to_string(),
                        24 + random.below(9),
                    ),
                    _ => (
                        Ipv6Addr::from_bits((0x2001_0db8 << 96) + (u128::from(row) << 64)).to_string(),
                        64 + random.below(65),
                    ),
                };
                let policy = POLICIES[random.below(4) as usize].0;
                let dscp = ["EF", "VA", "AF41", "CS5"][random.below(4) as usize];
                let rate = Rate::from_bps(1 + random.below(10_000_000_000));
                table += &format!("{row},{ip},{mask},{rate},{},{dscp},{policy}\n", random.below(101));
            }
            let text = "interface lan0\n".to_string() + &lines(&table).join("\n") + "\n";
            let plan = crate::read("t", &text, &registry).into_result().unwrap();
            let (back, lost) = export(&plan);
            assert!(back == table && lost.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn what_has_no_column_is_said() {
        let text = "interface lan0\nsla lan0 17 10.0.0.0/24 bw 1M timeout 3s class rt\nsla lan0 18 10.0.1.0/24 bw 1M\n";
        let plan = crate::read("t", text, &Registry::builtin()).into_result().unwrap();
        let (table, lost) = export(&plan);
        assert_eq!(lost, ["contract 17 of lan0: timeout 3s class rt"]);
        assert!(table.ends_with("\n18,10.0.1.0,24,1M,0,EF,BE\n"), "{table}");
    }
}
