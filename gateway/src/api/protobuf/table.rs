//! The messages of the kinds served and their fields: `fields.txt`, whose head says how it is
//! written, read once.
//!
//! Bounded by that file. It knows no bytes.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How often a field occurs, and what JSON does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At most once, left out when empty.
    Plain,
    /// At most once, written even if empty.
    Kept,
    /// Any number of times.
    List,
    /// Any number of times, each with a text as its key.
    Map,
    /// At most once; its fields are the outer message's own.
    Inline,
}

/// What a field holds, by how it is written in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Flag,
    Int32,
    Int64,
    Float,
    Bytes,
    /// A message around a list of texts, of which JSON has the list only.
    Texts,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON as it is.
    Raw,
    Message(MessageId),
    /// A message of which JSON has the value of the field that is set.
    Union(MessageId),
}

/// A message of this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageId(usize);

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) form: Form,
}

/// Fields by number, in order.
type Message = Vec<(u64, Field)>;

#[derive(Debug)]
pub(super) struct Table {
    /// By version and kind.
    kinds: HashMap<(&'static str, &'static str), MessageId>,
    messages: Vec<Message>,
}

const TEXT: &str = include_str!("fields.txt");

pub(super) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(TEXT).expect("our own file, and a test reads it"));

impl Table {
    /// `None` when a line is not as the head of the file says.
    fn parse(text: &'static str) -> Option<Table> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let messages = || lines().filter(|line| !line.starts_with("= "));
        let ids: HashMap<_, _> = messages()
            .enumerate()
            .map(|(at, line)| (line.split(' ').next().unwrap_or_default(), MessageId(at)))
            .collect();
        let kind = |line: &'static str| {
            let mut words = line.split(' ');
            let key = (words.next()?, words.next()?);
            Some((key, *ids.get(words.next()?)?))
        };
        let message = |line: &'static str| {
            let fields = line.split(' ').skip(1);
            fields.map(|word| field(word, &ids)).collect()
        };
        let kinds = lines().filter_map(|line| line.strip_prefix("= "));
        Some(Table {
            kinds: kinds.map(kind).collect::<Option<_>>()?,
            messages: messages().map(message).collect::<Option<_>>()?,
        })
    }

    /// The message that objects of a kind are.
    pub(super) fn message_of(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.kinds.get(&(api_version, kind)).copied()
    }

    pub(super) fn field(&self, message: MessageId, number: u64) -> Option<Field> {
        let fields = self.messages.get(message.0)?;
        let at = fields.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        fields.get(at).map(|(_, field)| *field)
    }

    /// Every field of every message.
    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        self.messages.iter().flatten().map(|(_, field)| *field)
    }
}

/// One `NUMBER:NAME:TYPE`.
fn field(word: &'static str, ids: &HashMap<&'static str, MessageId>) -> Option<(u64, Field)> {
    let mut parts = word.splitn(3, ':');
    let number = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let word = parts.next()?;
    let places = [
        ('!', Place::Kept),
        ('*', Place::List),
        ('%', Place::Map),
        ('^', Place::Inline),
    ];
    let (place, word) = places
        .iter()
        .find_map(|(mark, place)| Some((*place, word.strip_prefix(*mark)?)))
        .unwrap_or((Place::Plain, word));
    let form = match word {
        "s" => Form::Text,
        "b" => Form::Flag,
        "i32" => Form::Int32,
        "i64" => Form::Int64,
        "f64" => Form::Float,
        "y" => Form::Bytes,
        "l" => Form::Texts,
        "time" => Form::Time,
        "microtime" => Form::MicroTime,
        "quantity" => Form::Quantity,
        "intorstring" => Form::IntOrString,
        "raw" => Form::Raw,
        word => match word.strip_prefix('|') {
            Some(union) => Form::Union(*ids.get(union)?),
            None => Form::Message(*ids.get(word)?),
        },
    };
    Some((number, Field { name, place, form }))
}
