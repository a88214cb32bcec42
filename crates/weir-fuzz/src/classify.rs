//! The compiled classifier beside its meaning: the list of filters, searched from the top.

use arbitrary::{Result, Unstructured};
use weir_core::classify::{Classifier, Field, Filter, FilterId};
use weir_core::packet::{Family, Key};

/// Filters that are present, with the number of their insertion.
type List = Vec<(FilterId, Filter, u32)>;

/// Inserts, removals and look-ups as the bytes say.
pub fn classify(bytes: &[u8]) {
    // The end of the bytes is the end of the calls.
    let _ = calls(&mut Unstructured::new(bytes));
}

fn calls(input: &mut Unstructured<'_>) -> Result<()> {
    let mut compiled = Classifier::empty();
    let mut list: List = Vec::new();
    let mut count = 0;
    while !input.is_empty() {
        match input.int_in_range(0..=3)? {
            0 if !list.is_empty() => {
                let (id, ..) = list.swap_remove(input.choose_index(list.len())?);
                assert!(compiled.remove(id).is_some(), "filter {id:?} cannot be removed");
            }
            1 | 2 => {
                let filter = filter(input)?;
                count += 1;
                list.push((compiled.insert(filter.clone()), filter, count));
            }
            _ => {
                let key = key(input)?;
                let best =
                    list.iter().filter(|(_, f, _)| matches(f, &key)).max_by_key(|(_, f, n)| rank(f, *n));
                let found = compiled.classify(&key);
                assert_eq!(
                    found.map(|m| m.filter),
                    best.map(|b| b.0),
                    "of {} filters for {key:?}",
                    list.len()
                );
                assert_eq!(found.map(|m| m.class), best.map(|b| b.1.class));
            }
        }
        assert_eq!(compiled.len(), list.len());
    }
    Ok(())
}

/// Precedence in ALTQ's words: the greater rule number, then filters for one destination host, then
/// the later line.
fn rank(filter: &Filter, inserted: u32) -> (i32, bool, u32, u32) {
    let host = filter.family() == Family::V4 && filter.mask().get(Field::Dst) == 0xffff_ffff;
    (filter.ruleno, host, filter.order, inserted)
}

fn matches(filter: &Filter, key: &Key) -> bool {
    if filter.family() != key.family || key.family == Family::Other {
        return false;
    }
    let found = [
        (Field::Dst, key.dst),
        (Field::Src, key.src),
        (Field::DstPort, u128::from(key.dst_port)),
        (Field::SrcPort, u128::from(key.src_port)),
        (Field::Protocol, u128::from(key.protocol)),
        (Field::Tos, u128::from(key.tos)),
        (Field::FlowLabel, u128::from(key.flow_label)),
        (Field::Spi, u128::from(key.spi)),
    ];
    found.iter().all(|&(field, value)| {
        let mask = filter.mask().get(field);
        value & mask == filter.value().get(field)
    })
}

/// Few values, so that filters overlap and packets meet them.
fn value(input: &mut Unstructured<'_>, field: Field) -> Result<u128> {
    let low = u128::from(input.arbitrary::<u8>()? & 0x0f);
    Ok(match field {
        Field::Dst | Field::Src => 0x0a00_0000 | (low & 3) << 8 | low >> 2,
        Field::DstPort | Field::SrcPort => 5_000 + low,
        Field::Protocol => [6, 17][(low & 1) as usize],
        _ => low,
    })
}

fn family(input: &mut Unstructured<'_>) -> Result<Family> {
    Ok(if input.ratio(1, 2)? { Family::V4 } else { Family::V6 })
}

fn filter(input: &mut Unstructured<'_>) -> Result<Filter> {
    let family = family(input)?;
    let mut filter = Filter::new(family, input.int_in_range(0..=7)?, input.int_in_range(0..=20)?)
        .ruleno(input.int_in_range(-2..=2)?);
    for field in Field::ALL {
        let full = field.full_mask(family);
        if full == 0 || !input.ratio(1, 3)? {
            continue;
        }
        let value = value(input, field)?;
        filter = match field {
            Field::Dst | Field::Src => {
                let bits = full.count_ones();
                filter.prefix(field, value, bits - input.int_in_range(0..=bits.min(12))?)
            }
            _ => filter.exactly(field, value),
        };
    }
    Ok(filter)
}

fn key(input: &mut Unstructured<'_>) -> Result<Key> {
    let family = family(input)?;
    let mut key = Key {
        family,
        src: value(input, Field::Src)?,
        dst: value(input, Field::Dst)?,
        protocol: value(input, Field::Protocol)? as u8,
        tos: value(input, Field::Tos)? as u8,
        ..Key::default()
    };
    key.dst_port = value(input, Field::DstPort)? as u16;
    key.src_port = value(input, Field::SrcPort)? as u16;
    if family == Family::V6 {
        key.flow_label = value(input, Field::FlowLabel)? as u32;
    }
    key.spi = value(input, Field::Spi)? as u32;
    Ok(key)
}
