// The verbs of the command line. Each takes its own arguments (argv[0] is the verb), returns the
// exit code, and throws seqfuse::Error; main() prints errors and maps them to exit codes.
#pragma once

namespace seqfuse::cli {

using Verb = int (*)(int argc, char** argv);

// In the seqfuse executable: these verbs start without loading libtorch (0.5 s).
int cmd_doctor(int argc, char** argv);
int cmd_preprocess(int argc, char** argv);
int cmd_synthesize(int argc, char** argv);
int cmd_report(int argc, char** argv);
int cmd_mask(int argc, char** argv);  // mask show
int cmd_scheme(int argc, char** argv);
int cmd_predict(int argc, char** argv);

// In libseqfuse_engine.so, which main() loads when one of them is called.
int cmd_train(int argc, char** argv);  // train ranking | train retrieval
int cmd_evaluate(int argc, char** argv);
int cmd_recommend(int argc, char** argv);
int cmd_similar(int argc, char** argv);
int cmd_export(int argc, char** argv);
int cmd_generate(int argc, char** argv);
int cmd_perplexity(int argc, char** argv);
int cmd_encode(int argc, char** argv);
int cmd_tune(int argc, char** argv);
int cmd_bench(int argc, char** argv);       // bench decode
int bench_sparsity(int argc, char** argv);  // bench sparsity, called by cmd_bench

}  // namespace seqfuse::cli
