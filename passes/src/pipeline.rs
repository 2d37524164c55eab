//! The list of all passes: in which order they run, and why there. What `numrsc inspect --after` knows, what compiling
//! does and what filetests can name derive from it.
use numrsc_egraph::{self as egraph, optimise};
use numrsc_emit::{Lowered, emit};
use numrsc_facts::{ATTENTION, Context, Error, Level, Result};
use numrsc_ir::Func;
use numrsc_tensor::{
    dequantised_products, fold, fold_channel_scale, fourier, half_to_f32, layout, literals, narrow, unroll,
    without_odd_blocks,
};
use std::borrow::Cow;

/// A pass, a row of [`PIPELINE`].
#[derive(Debug)]
pub struct Pass {
    pub name: &'static str,
    /// The lowest level that runs it.
    pub from: Level,
    /// Why it is at this place.
    pub why: &'static str,
    /// How results may differ by it.
    pub changes: Changes,
    pub step: Step,
}

/// What a pass may change of results.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Changes {
    /// No bit.
    Nothing,
    /// By no more than this, relative to the largest sum of magnitudes of an element, where `--tolerance` admits it.
    Within(f64),
    /// By rounding, at this level and above.
    Rounding(Level),
}

/// What a pass does: all get a verified function and the context, and change neither.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Done by the front end before.
    Import,
    /// From tensor IR to tensor IR.
    Tensor(fn(&Func, &Context) -> Result<Func>),
    /// From tensor IR to kernel IR.
    Lower(fn(&Func, &Context) -> Result<Lowered>),
}

/// What a model is after a pass.
#[derive(Debug)]
pub enum Stage<'f> {
    Tensor(Cow<'f, Func>),
    Kernel(Lowered),
}

/// All passes in their order.
pub const PIPELINE: &[Pass] = &[
    Pass {
        name: "import",
        from: Level::O0,
        why: "first: everything behind it knows the core ops only",
        changes: Changes::Nothing,
        step: Step::Import,
    },
    Pass {
        name: "prune",
        from: Level::O0,
        why: "import leaves nodes that no result needs, and nothing behind it should spend time on them",
        changes: Changes::Nothing,
        step: Step::Tensor(prune),
    },
    Pass {
        name: "half-to-f32",
        from: Level::O2,
        why: "before everything that looks at types: nothing behind it need know of floats of 16 bits, and folding converts what weights it should",
        changes: Changes::Within(half_to_f32::ERROR),
        step: Step::Tensor(half_to_f32),
    },
    Pass {
        name: "unroll",
        from: Level::O2,
        why: "before everything that looks at single nodes: the rounds of short loops are ordinary nodes then",
        changes: Changes::Nothing,
        step: Step::Tensor(unroll),
    },
    Pass {
        name: "literals",
        from: Level::O1,
        why: "before folding: a weight and its zero point are then a function of the weight alone, which may stay narrow",
        changes: Changes::Nothing,
        step: Step::Tensor(literals),
    },
    Pass {
        name: "dequantised-products",
        from: Level::O2,
        why: "before folding makes floats of weights, and where a scale and a zero point are part of one function",
        changes: Changes::Rounding(Level::O2),
        step: Step::Tensor(dequantised_products),
    },
    Pass {
        name: "fold",
        from: Level::O1,
        why: "before optimising: what is constant is one node then, however it was written",
        changes: Changes::Nothing,
        step: Step::Tensor(fold),
    },
    Pass {
        name: "fourier",
        from: Level::O2,
        why: "after folding: waves are constants then, and before rules join them with others",
        changes: Changes::Within(fourier::ERROR),
        step: Step::Tensor(fourier),
    },
    Pass {
        name: "optimise",
        from: Level::O2,
        why: "on the smallest graph, and before anything is decided about loops and memory",
        changes: Changes::Rounding(Level::O3),
        step: Step::Tensor(optimise),
    },
    Pass {
        name: "fold-channel-scale",
        from: Level::O2,
        why: "after rules have put functions of elements together, wherever their regions ended",
        changes: Changes::Within(fold_channel_scale::ERROR),
        step: Step::Tensor(fold_channel_scale),
    },
    Pass {
        name: "fold-again",
        from: Level::O2,
        why: "rules move work to constants and leave it to folding",
        changes: Changes::Nothing,
        step: Step::Tensor(fold),
    },
    Pass {
        name: "narrow",
        from: Level::O2,
        why: "after rules, which know products of one type, and after folding, as weights are looked at",
        changes: Changes::Nothing,
        step: Step::Tensor(narrow),
    },
    Pass {
        name: "layout",
        from: Level::O2,
        why: "after everything that knows convolutions by their plain layout, before loops are made of them",
        changes: Changes::Nothing,
        step: Step::Tensor(layout),
    },
    Pass {
        name: "lower",
        from: Level::O0,
        why: "last: loops and memory are planned for exactly the ops that are left",
        changes: Changes::Rounding(Level::O0),
        step: Step::Lower(lower),
    },
];

fn prune(func: &Func, _: &Context) -> Result<Func> {
    Ok(func.without_dead_nodes())
}

/// Kernels and the entry function of a verified function.
pub fn lower(func: &Func, cx: &Context) -> Result<Lowered> {
    // Blocks that no kernel does are undone here, at every level: functions may come with them.
    emit(&without_odd_blocks(&func.without_dead_nodes(), cx.machine)?, cx)
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    PIPELINE.iter().find(|pass| pass.name == name)
}

/// The names of everything that can be left out, to see what it is worth.
pub fn optional_names() -> Vec<&'static str> {
    let passes = PIPELINE.iter().filter(|p| p.is_optional()).map(|p| p.name);
    egraph::rule_names().into_iter().chain(passes).chain([ATTENTION]).collect()
}

impl Pass {
    /// Is the result right without it?
    fn is_optional(&self) -> bool {
        self.from > Level::O0
    }

    /// Does the pipeline run it with these options?
    pub fn is_wanted(&self, cx: &Context) -> bool {
        self.from <= cx.options.level && !(self.is_optional() && cx.leaves_out(self.name))
    }

    /// Does it change no bit of any result?
    pub fn keeps_bits(&self, cx: &Context) -> bool {
        match self.changes {
            Changes::Nothing => true,
            Changes::Within(error) => cx.options.tolerance < error,
            Changes::Rounding(from) => cx.options.level < from,
        }
    }

    /// Does it leave no function to go on with?
    pub fn is_last(&self) -> bool {
        matches!(self.step, Step::Lower(_))
    }

    /// Run it. Where there are debug assertions, what it gives is verified.
    pub fn run<'f>(&self, func: Cow<'f, Func>, cx: &Context) -> Result<Stage<'f>> {
        let stage = match self.step {
            Step::Import => Stage::Tensor(func),
            Step::Tensor(run) => Stage::Tensor(Cow::Owned(run(&func, cx)?)),
            Step::Lower(run) => Stage::Kernel(run(&func, cx)?),
        };
        if cfg!(debug_assertions) {
            stage.verify().map_err(|message| Error::Invalid { pass: self.name, message })?;
        }
        Ok(stage)
    }
}

impl Stage<'_> {
    /// What is wrong with it, if anything is.
    pub fn verify(&self) -> std::result::Result<(), String> {
        match self {
            Stage::Tensor(func) => numrsc_ir::verify(func).map_err(|e| e.to_string()),
            Stage::Kernel(lowered) => numrsc_ir::kernel::verify(&lowered.module).map_err(|e| e.to_string()),
        }
    }
}
