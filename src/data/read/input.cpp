#include "data/read/input.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "data/read/member_names.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHiddenNames = " (names that begin with . or _ are skipped)";
constexpr std::array<std::string_view, 5> kCompressed = {".gz", ".xz", ".zst", ".bz2", ".lzma"};

// An open archive. A compressed or plain file is treated as an archive of one unnamed member.
class Archive final : public ByteStream {
 public:
  explicit Archive(const fs::path& file)
      : file_(file.string()), archive_(archive_read_new(), archive_read_free) {
    archive_read_support_filter_all(archive_.get());
    // Only some formats: others would mistake text files for their own.
    archive_read_support_format_tar(archive_.get());
    archive_read_support_format_zip(archive_.get());
    archive_read_support_format_7zip(archive_.get());
    archive_read_support_format_raw(archive_.get());
    archive_read_support_format_empty(archive_.get());
    check(archive_read_open_filename(archive_.get(), file_.c_str(), size_t{1} << 18));
  }

  // Advances to the next member that is a file and not hidden; false at the end.
  bool next(InputMember& member) {
    for (;;) {
      archive_entry* entry = nullptr;
      const int status = archive_read_next_header(archive_.get(), &entry);
      if (status == ARCHIVE_EOF) return false;
      check(status);
      const bool raw = archive_format(archive_.get()) == ARCHIVE_FORMAT_RAW;
      if (!raw && archive_entry_filetype(entry) != AE_IFREG) continue;
      if (raw) {
        check_name();
        member = {without_compression(fs::path(file_).filename().string()), file_};
      } else {
        const char* name = archive_entry_pathname_utf8(entry);
        if (name == nullptr) name = "(unreadable name)";
        if (is_hidden(name)) continue;
        member = {without_compression(name), fmt::format("{}: {}", file_, name)};
      }
      return true;
    }
  }

  size_t read(char* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const la_ssize_t n = archive_read_data(archive_.get(), out + done, size - done);
      if (n < 0) check(ARCHIVE_FATAL);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  bool is_empty_file() const { return archive_format(archive_.get()) == ARCHIVE_FORMAT_EMPTY; }
  // A single file, compressed or not, rather than an archive.
  bool is_one_file() const { return archive_format(archive_.get()) == ARCHIVE_FORMAT_RAW; }

 private:
  void check(int status) {
    if (status == ARCHIVE_OK || status == ARCHIVE_WARN) return;
    const char* reason = archive_error_string(archive_.get());
    std::error_code ignored;
    throw_error<DataError>(
        "cannot read {} ({} bytes): {}\n  the file is truncated, damaged or not what its name "
        "says: "
        "compare its size with the source's and download it again",
        file_, fs::file_size(file_, ignored), reason != nullptr ? reason : "unknown format");
  }

  // Refuses plain bytes named like an archive or compressed file: a failed download.
  void check_name() {
    constexpr std::array<std::string_view, 4> kArchives = {".zip", ".tar", ".tgz", ".tar.gz"};
    const auto ends = [&](std::string_view ending) { return file_.ends_with(ending); };
    const bool plain = archive_filter_count(archive_.get()) <= 1;
    if (std::any_of(kArchives.begin(), kArchives.end(), ends) ||
        (plain && std::any_of(kCompressed.begin(), kCompressed.end(), ends))) {
      throw_error<DataError>(
          "{} is not what its name says: its content is {}\n  download it again, or rename it",
          file_, plain ? "neither an archive nor compressed" : "compressed but not an archive");
    }
  }

  std::string file_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
};

// An empty file's stream: libarchive does not open one as an archive of one member.
class NoBytes final : public ByteStream {
 public:
  size_t read(char* /*out*/, size_t /*size*/) override { return 0; }
};

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (is_hidden(entry->path().filename().string())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string without_compression(std::string name) {
  for (const std::string_view ending : kCompressed) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

PeekedStream::PeekedStream(ByteStream& stream, size_t size) : stream_(stream), head_(size, '\0') {
  head_.resize(stream.read(head_.data(), size));
}

size_t PeekedStream::read(char* out, size_t size) {
  const size_t of_head = head_.copy(out, size, taken_);
  taken_ += of_head;
  return of_head + stream_.read(out + of_head, size - of_head);
}

std::string InputMember::base_name() const {
  return name.substr(name.rfind('/') + 1);
}

std::vector<std::string> visit_input(
    const fs::path& input, const std::function<bool(const InputMember&)>& wanted,
    const std::function<void(const InputMember&, ByteStream&)>& visit) {
  std::error_code error;
  if (!fs::exists(input, error)) {
    throw_error<DataError>("{} does not exist: give --input a folder, an archive or a file",
                           input.string());
  }
  std::vector<std::string> names;
  if (!fs::is_directory(input)) {
    Archive archive(input);
    InputMember member;
    while (archive.next(member)) {
      names.push_back(member.name);
      if (wanted(member)) visit(member, archive);
    }
    if (names.empty()) {
      throw_error<DataError>("{} is empty{}", input.string(),
                             archive.is_empty_file() ? "" : kHiddenNames);
    }
    return names;
  }
  for (const fs::path& file : files_below(input)) {
    const std::string name = without_compression(fs::relative(file, input).string());
    names.push_back(name);
    if (!wanted({name, file.string()})) continue;
    Archive archive(file);
    InputMember inner;
    const bool has_content = archive.next(inner);
    if (!archive.is_empty_file() && !(has_content && archive.is_one_file())) {
      throw_error<DataError>(
          "{} is an archive inside a folder: unpack it there, or give it as --input",
          file.string());
    }
    if (has_content) {
      visit({name, file.string()}, archive);
    } else {
      NoBytes none;
      visit({name, file.string()}, none);
    }
  }
  if (names.empty()) throw_error<DataError>("{} holds no files{}", input.string(), kHiddenNames);
  return names;
}

std::string read_all(ByteStream& stream, const std::string& name, size_t limit) {
  std::string content;
  size_t size = 0;
  for (;;) {
    content.resize(size + (size_t{1} << 20));
    const size_t n = stream.read(content.data() + size, content.size() - size);
    size += n;
    if (n == 0) break;
    if (size > limit) throw_error<DataError>("{}: larger than {} bytes", name, limit);
  }
  content.resize(size);
  return content;
}

}  // namespace seqfuse::data
