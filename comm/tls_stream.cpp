#include "comm/tls_stream.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kRecord = 16 << 10;        // the longest of TLS
constexpr std::size_t kWriteTogether = 128 << 10; // ciphertext gathered for one write
constexpr std::size_t kReadAhead = 64 << 10;     // ciphertext taken in one read

template <auto free_it>
struct Free {
  template <class T>
  void operator()(T* it) const { free_it(it); }
};

class TlsStream final : public Stream {
 public:
  TlsStream(Loop& loop, std::unique_ptr<Stream> inner, std::array<std::byte, 32> secret, TlsRole role,
            std::uint64_t rekey_after);
  ~TlsStream() override {
    if (ssl_ && shaken_ && failure_.ok()) {
      SSL_shutdown(ssl_.get());
      flush();
    }
  }

  // One step of it. ok and false: more has to come or go first.
  Result<bool> shake_hands();
  bool has_output() const { return out_begin_ < out_.size(); }
  Stream& inner() { return *inner_; }

  IoResult read(std::span<std::byte> into) override;
  IoResult write(std::span<const iovec> from) override;
  void when_readable(std::function<void()> callback) override;
  void when_writable(std::function<void()> callback) override;
  Status send_descriptors(std::span<const int>) override {
    return {Code::unsupported, "descriptors cannot be passed on an encrypted connection"};
  }
  Result<std::vector<int>> receive_descriptors() override {
    return Status(Code::unsupported, "descriptors cannot be passed on an encrypted connection");
  }
  std::uint64_t retransmitted() const override { return inner_->retransmitted(); }
  std::size_t unsent_bytes() const override { return out_.size() - out_begin_ + inner_->unsent_bytes(); }
  std::string local_address() const override { return inner_->local_address(); }
  std::string remote_address() const override { return inner_->remote_address(); }

 private:
  using Callback = std::shared_ptr<const std::function<void()>>;

  static BIO_METHOD* method();
  static int bio_read(BIO* bio, char* into, int bytes);
  static int bio_write(BIO* bio, const char* from, int bytes);
  static long bio_control(BIO* bio, int command, long, void*);
  static unsigned client_secret(SSL* ssl, const char*, char* identity, unsigned identity_bytes, unsigned char* psk,
                                unsigned psk_bytes);
  static unsigned server_secret(SSL* ssl, const char*, unsigned char* psk, unsigned psk_bytes);
  unsigned give_secret(unsigned char* psk, unsigned psk_bytes) const;

  void flush();
  bool put(const std::byte* data, std::size_t bytes);
  IoResult ended(int result);
  Status refused(const char* what);
  void watch_writing();
  void writable();
  void look_again();
  bool has_news();

  Loop& loop_;
  std::unique_ptr<Stream> inner_;
  const std::array<std::byte, 32> secret_;
  const std::uint64_t rekey_after_;
  std::unique_ptr<SSL, Free<SSL_free>> ssl_;
  std::vector<std::byte> out_;                    // ciphertext on its way; from out_begin_
  std::size_t out_begin_ = 0;
  std::array<std::byte, kRecord> plain_;          // small parts, gathered
  std::uint64_t records_ = 0;                     // written under this key
  bool shaken_ = false;
  bool closed_ = false;                           // by the other end
  bool more_ = false;                             // a read took all that it had room for
  Status failure_;
  Callback readable_, writable_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

TlsStream::TlsStream(Loop& loop, std::unique_ptr<Stream> inner, std::array<std::byte, 32> secret, TlsRole role,
                     std::uint64_t rekey_after)
    : loop_(loop), inner_(std::move(inner)), secret_(secret), rekey_after_(rekey_after) {
  const std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context(SSL_CTX_new(TLS_method()));
  TUTTI_CHECK(context);
  TUTTI_CHECK(SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1);
  TUTTI_CHECK(SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") == 1);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_clear_options(context.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_psk_client_callback(context.get(), client_secret);
  SSL_CTX_set_psk_server_callback(context.get(), server_secret);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAhead);
  ssl_.reset(SSL_new(context.get()));
  TUTTI_CHECK(ssl_);
  BIO* bio = BIO_new(method());
  TUTTI_CHECK(bio);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  role == TlsRole::client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
}

BIO_METHOD* TlsStream::method() {
  static BIO_METHOD* const made = [] {
    BIO_METHOD* out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti stream");
    TUTTI_CHECK(out);
    BIO_meth_set_read(out, bio_read);
    BIO_meth_set_write(out, bio_write);
    BIO_meth_set_ctrl(out, bio_control);
    return out;
  }();
  return made;
}

int TlsStream::bio_read(BIO* bio, char* into, int bytes) {
  auto* self = static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const IoResult io = self->inner_->read({reinterpret_cast<std::byte*>(into), std::size_t(bytes)});
  if (!io.status.ok()) self->failure_ = io.status;
  if (io.closed) self->closed_ = true;
  if (io.bytes > 0) return int(io.bytes);
  if (io.closed || !io.status.ok()) return io.closed ? 0 : -1;
  BIO_set_retry_read(bio);
  return -1;
}

int TlsStream::bio_write(BIO* bio, const char* from, int bytes) {
  auto* self = static_cast<TlsStream*>(BIO_get_data(bio));
  const auto* data = reinterpret_cast<const std::byte*>(from);
  BIO_clear_retry_flags(bio);
  self->out_.insert(self->out_.end(), data, data + bytes);
  return bytes;
}

long TlsStream::bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

unsigned TlsStream::give_secret(unsigned char* psk, unsigned psk_bytes) const {
  if (psk_bytes < secret_.size()) return 0;
  std::memcpy(psk, secret_.data(), secret_.size());
  return unsigned(secret_.size());
}

unsigned TlsStream::client_secret(SSL* ssl, const char*, char* identity, unsigned identity_bytes, unsigned char* psk,
                                  unsigned psk_bytes) {
  constexpr std::string_view kIdentity = "tutti";
  if (identity_bytes <= kIdentity.size()) return 0;
  std::memcpy(identity, kIdentity.data(), kIdentity.size() + 1);
  return static_cast<TlsStream*>(SSL_get_app_data(ssl))->give_secret(psk, psk_bytes);
}

unsigned TlsStream::server_secret(SSL* ssl, const char*, unsigned char* psk, unsigned psk_bytes) {
  return static_cast<TlsStream*>(SSL_get_app_data(ssl))->give_secret(psk, psk_bytes);
}

Status TlsStream::refused(const char* what) {
  char text[256] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0) ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return {Code::network, fmt::format("{}: {} (TLS: {})", inner_->remote_address(), what, text)};
}

Result<bool> TlsStream::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  flush();
  if (result == 1) {
    shaken_ = true;
    more_ = true;                                 // what followed may be here already
    return !has_output();
  }
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ && failure_.ok() && !closed_) return false;
  if (!failure_.ok()) return failure_;
  if (closed_)
    return Status(Code::network,
                  fmt::format("{}: closed while the encryption was agreed on", inner_->remote_address()));
  return refused("no encryption could be agreed on");
}

// As far as the stream takes it; the rest goes when the loop says so, or with the next call.
void TlsStream::flush() {
  while (has_output() && failure_.ok()) {
    const iovec part{out_.data() + out_begin_, out_.size() - out_begin_};
    const IoResult io = inner_->write({&part, 1});
    if (!io.status.ok()) failure_ = io.status;
    if (io.bytes == 0) break;
    out_begin_ += io.bytes;
  }
  if (!has_output()) {
    out_.clear();
    out_begin_ = 0;
  }
  watch_writing();
}

void TlsStream::watch_writing() {
  if (has_output() || writable_) inner_->when_writable([this] { writable(); });
  else inner_->when_writable({});
}

void TlsStream::writable() {
  flush();
  if (has_output() && failure_.ok()) return;
  if (const Callback callback = writable_) (*callback)();      // may destroy this object
}

IoResult TlsStream::ended(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  if (!failure_.ok()) return {.status = failure_};
  if (error == SSL_ERROR_ZERO_RETURN || closed_) return {.closed = true};
  if (error == SSL_ERROR_WANT_READ) return {};
  failure_ = refused("what came was damaged, or forged");
  return {.status = failure_};
}

IoResult TlsStream::read(std::span<std::byte> into) {
  if (has_output()) flush();
  if (!failure_.ok()) return {.status = failure_};
  std::size_t got = 0;
  more_ = false;
  while (got < into.size()) {
    std::size_t part = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), into.data() + got, into.size() - got, &part);
    if (result == 1) {
      got += part;
      continue;
    }
    const IoResult end = ended(result);
    if (has_output()) flush();
    if (got == 0) return end;
    return {.bytes = got};
  }
  more_ = got > 0;
  if (more_ && readable_) look_again();
  return {.bytes = got};
}

// Whether a read would bring something, or an end: a part of a record, or one of TLS's own, is not news.
bool TlsStream::has_news() {
  std::byte first;
  std::size_t there = 0;
  ERR_clear_error();
  const int result = SSL_peek_ex(ssl_.get(), &first, 1, &there);
  if (has_output()) flush();
  return result == 1 || !failure_.ok() || closed_ || SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ;
}

// What has been taken from the stream already announces itself no more.
void TlsStream::look_again() {
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || !std::exchange(more_, false) || !has_news()) return;
    if (const Callback callback = readable_) (*callback)();
  });
}

bool TlsStream::put(const std::byte* data, std::size_t bytes) {
  if (records_ >= rekey_after_) {
    records_ = 0;
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  std::size_t taken = 0;
  ERR_clear_error();
  if (SSL_write_ex(ssl_.get(), data, bytes, &taken) != 1 || taken != bytes) {
    if (failure_.ok()) failure_ = refused("cannot encrypt");
    return false;
  }
  ++records_;
  return true;
}

// Takes nothing while ciphertext waits: what is taken is on its way.
IoResult TlsStream::write(std::span<const iovec> from) {
  if (has_output()) flush();
  if (!failure_.ok()) return {.status = failure_};
  if (has_output()) return {};
  std::size_t moved = 0, gathered = 0;
  const auto put_gathered = [&] {
    const std::size_t bytes = std::exchange(gathered, 0);
    return bytes == 0 || put(plain_.data(), bytes);
  };
  for (const iovec& part : from) {
    const auto* data = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t left = part.iov_len; left > 0 && out_.size() < kWriteTogether;) {
      if (gathered == 0 && left >= kRecord) {
        if (!put(data, kRecord)) return {.status = failure_};
        data += kRecord, left -= kRecord, moved += kRecord;
        continue;
      }
      const std::size_t piece = std::min(left, kRecord - gathered);
      std::memcpy(plain_.data() + gathered, data, piece);
      gathered += piece;
      data += piece, left -= piece, moved += piece;
      if (gathered == kRecord && !put_gathered()) return {.status = failure_};
    }
    if (out_.size() >= kWriteTogether) break;
  }
  if (!put_gathered()) return {.status = failure_};
  flush();
  return {.bytes = moved};
}

void TlsStream::when_readable(std::function<void()> callback) {
  readable_ = callback ? std::make_shared<const std::function<void()>>(std::move(callback)) : nullptr;
  if (!readable_) return inner_->when_readable({});
  inner_->when_readable([this] {
    if (!has_news()) return;
    if (const Callback now = readable_) (*now)();
  });
  if (more_) look_again();
}

void TlsStream::when_writable(std::function<void()> callback) {
  writable_ = callback ? std::make_shared<const std::function<void()>>(std::move(callback)) : nullptr;
  watch_writing();
}

}  // namespace

Task<Result<std::unique_ptr<Stream>>> secure(Loop& loop, std::unique_ptr<Stream> stream,
                                             std::array<std::byte, 32> secret, TlsRole role, TimePoint deadline,
                                             std::uint64_t rekey_after) {
  auto tls = std::make_unique<TlsStream>(loop, std::move(stream), secret, role, rekey_after);
  for (;;) {
    const auto done = tls->shake_hands();
    if (!done) co_return done.status();
    if (*done) break;
    Readiness ready(loop, tls->inner(), tls->has_output() ? Readiness::Side::writable : Readiness::Side::readable,
                    deadline);
    const bool in_time = co_await ready;
    if (!in_time)
      co_return Status(Code::timeout, fmt::format("{}: no encryption was agreed on in time", tls->remote_address()));
  }
  co_return std::unique_ptr<Stream>(std::move(tls));
}

}  // namespace tutti::comm
