//! How messages are laid into gRPC frames.
//!
//! It asks for the room of the whole message at once: a list of a hundred megabytes is then written
//! into one buffer instead of growing one by doubling. Decoding is the library's own.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Bytes a fresh frame buffer starts with: most replies are a header and one object of a few
/// hundred bytes; larger ones reserve what they need.
const BUFFER_BYTES: usize = 1024;
/// Bytes of ready frames after which a stream hands them to the connection, so that a burst of
/// watch responses goes out together without piling up.
const YIELD_BYTES: usize = 32 * 1024;

/// The codec of every service here; chosen in `build.rs`.
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Reserving<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Reserving(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}

/// Encodes after reserving the message's exact length.
pub(crate) struct Reserving<T>(PhantomData<T>);

impl<T: Message> Encoder for Reserving<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        item.encode_raw(buf);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}
