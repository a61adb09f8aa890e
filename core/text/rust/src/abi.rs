//! The functions that `core/text/rust_abi.h` declares; that header documents them.
//!
//! SAFETY of every `unsafe` block below: the header obliges its callers to pass handles that these functions made
//! and that are not freed, views that are readable during the call, and places that are writable.

use std::sync::Arc;

use crate::abi_support::{guarded, ErrorOut, Owned, View};
use crate::chat::{ChatFiles, ChatRequest, ChatSettings};
use crate::error::{Code, Result, TextError};
use crate::stream::TextStream;
use crate::tokenizer::{Limits, TextTokenizer};

type Handle = Arc<TextTokenizer>;

#[repr(C)]
pub struct ChatParts {
    text: Owned<u8>,
    /// Begin and end of each part, in bytes.
    generated: Owned<u64>,
    /// Names with a zero byte after each.
    unknown: Owned<u8>,
    marked: bool,
}

/// Handles are used from many threads at once.
const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<TextTokenizer>();
};

#[repr(C)]
pub struct Files {
    tokenizer_json: View,
    tokenizer_config: View,
    special_tokens_map: View,
    chat_template: View,
    chat_template_json: View,
    tool_use_template: View,
}

#[repr(C)]
pub struct Chat {
    messages: View,
    tools: View,
    extra: View,
    add_generation_prompt: bool,
}

fn chat_settings(files: &Files) -> Result<ChatSettings> {
    unsafe {
        ChatSettings::parse(&ChatFiles {
            config: files.tokenizer_config.text("tokenizer_config.json")?,
            special_tokens: files.special_tokens_map.text("special_tokens_map.json")?,
            template: files.chat_template.text("chat_template.jinja")?,
            template_json: files.chat_template_json.text("chat_template.json")?,
            tool_use: files.tool_use_template.text("additional_chat_templates/tool_use.jinja")?,
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_create(
    files: *const Files,
    limits: Limits,
    crate_model: bool,
    out: *mut *mut Handle,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let json = (*files).tokenizer_json.bytes();
            let tokenizer = TextTokenizer::from_json(json, chat_settings(&*files)?, limits, crate_model)?;
            out.write(Box::into_raw(Box::new(Arc::new(tokenizer))));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_create_fast(
    fast: View,
    files: *const Files,
    limits: Limits,
    out: *mut *mut Handle,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let json = (*files).tokenizer_json.bytes();
            let tokenizer = TextTokenizer::from_fast(fast.bytes(), json, chat_settings(&*files)?, limits)?;
            out.write(Box::into_raw(Box::new(Arc::new(tokenizer))));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_free(tokenizer: *mut Handle) {
    unsafe {
        guarded(std::ptr::null_mut(), || {
            if !tokenizer.is_null() {
                drop(Box::from_raw(tokenizer));
            }
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_cancel(tokenizer: *const Handle) {
    unsafe { (*tokenizer).cancel() }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_save_fast(
    tokenizer: *const Handle,
    out: *mut Owned<u8>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Owned::new((*tokenizer).save_fast()?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_encode(
    tokenizer: *const Handle,
    text: View,
    add_special: bool,
    out: *mut Owned<i32>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(Owned::new((*tokenizer).encode(text.bytes(), add_special)?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_decode(
    tokenizer: *const Handle,
    ids: *const i32,
    count: usize,
    skip_special: bool,
    out: *mut Owned<u8>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
            out.write(Owned::new((*tokenizer).decode(ids, skip_special)?.into_bytes()));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_vocab_size(tokenizer: *const Handle) -> i32 {
    unsafe { (**tokenizer).id_count as i32 }
}

/// Runs a look-up that cannot fail; a panic counts as "not found".
unsafe fn look_up(body: impl FnOnce() -> Option<i32>) -> i32 {
    let mut found = None;
    unsafe {
        guarded(std::ptr::null_mut(), || {
            found = body();
            Ok(())
        });
    }
    found.unwrap_or(-1)
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_piece_to_id(tokenizer: *const Handle, piece: View) -> i32 {
    unsafe { look_up(|| (*tokenizer).id(piece.bytes())) }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_named_token(tokenizer: *const Handle, key: View) -> i32 {
    unsafe { look_up(|| (*tokenizer).named_token(key.text("key").ok()?)) }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_is_special(tokenizer: *const Handle, id: i32) -> bool {
    unsafe { look_up(|| (*tokenizer).is_special(id).then_some(1)) == 1 }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_id_to_piece(
    tokenizer: *const Handle,
    id: i32,
    out: *mut Owned<u8>,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let piece = (*tokenizer).piece(id).ok_or_else(|| {
                TextError::new(
                    Code::InvalidArgument,
                    format!("no piece has the id {id}"),
                    "ids run from 0 to the vocabulary's size",
                )
            })?;
            out.write(Owned::new(piece.into_bytes()));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_has_chat_template(tokenizer: *const Handle) -> bool {
    unsafe { (*tokenizer).has_chat_template() }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_render_chat(
    tokenizer: *const Handle,
    chat: *const Chat,
    out: *mut ChatParts,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let chat = &*chat;
            let rendered = (*tokenizer).render_chat(&ChatRequest {
                messages: chat.messages.text("messages")?,
                tools: chat.tools.text("tools")?,
                extra: chat.extra.text("extra variables")?,
                add_generation_prompt: chat.add_generation_prompt,
            })?;
            let marked = rendered.generated.is_some();
            let places = rendered.generated.unwrap_or_default();
            let names: String = rendered.unknown.iter().flat_map(|name| [name.as_str(), "\0"]).collect();
            out.write(ChatParts {
                text: Owned::new(rendered.text.into_bytes()),
                generated: Owned::new(places.into_iter().flat_map(|(begin, end)| [begin as u64, end as u64]).collect()),
                unknown: Owned::new(names.into_bytes()),
                marked,
            });
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_chat_free(chat: ChatParts) {
    unsafe {
        chat.text.release();
        chat.generated.release();
        chat.unknown.release();
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_stream_create(
    tokenizer: *const Handle,
    skip_special: bool,
    out: *mut *mut TextStream,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            let stream = TextStream::new(Arc::clone(&*tokenizer), skip_special);
            out.write(Box::into_raw(Box::new(stream)));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_stream_push(
    stream: *mut TextStream,
    id: i32,
    out: *mut View,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(View::of((*stream).push(id)?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_stream_end_prompt(stream: *mut TextStream) {
    unsafe { (*stream).end_prompt() }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_stream_finish(
    stream: *mut TextStream,
    out: *mut View,
    error: *mut ErrorOut,
) -> i32 {
    unsafe {
        guarded(error, || {
            out.write(View::of((*stream).finish()?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_stream_free(stream: *mut TextStream) {
    unsafe {
        guarded(std::ptr::null_mut(), || {
            if !stream.is_null() {
                drop(Box::from_raw(stream));
            }
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_bytes_free(bytes: Owned<u8>) {
    unsafe { bytes.release() }
}

#[no_mangle]
pub unsafe extern "C" fn plait_text_ids_free(ids: Owned<i32>) {
    unsafe { ids.release() }
}
