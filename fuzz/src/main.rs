//! libFuzzer over one target of weir-fuzz: the one that `WEIR_TARGET` names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use weir_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("WEIR_TARGET").unwrap_or_default();
    weir_fuzz::find(&name).unwrap_or_else(|| {
        let names: Vec<&str> = weir_fuzz::TARGETS.iter().map(|t| t.name).collect();
        eprintln!("WEIR_TARGET={name}: expected one of {}", names.join(", "));
        std::process::exit(2);
    })
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
