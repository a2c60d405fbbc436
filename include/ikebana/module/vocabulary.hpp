#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#ifdef __clang__

// The words of the library's sentences as types. Versions of clang that print no text in a template
// argument print the name of a type, so that a sentence becomes a list of such types. The types are
// local to a function because clang prints these without a scope: `expects`, not
// `ikebana::detail::expects`. A word that is missing here is printed in single characters.

namespace ikebana::detail {

#define IKEBANA_WORDS(WORD, KEYWORD)                                                                             \
  KEYWORD(and) KEYWORD(auto) KEYWORD(bool) KEYWORD(class) KEYWORD(const) KEYWORD(constexpr)        \
  KEYWORD(continue) KEYWORD(default) KEYWORD(delete) KEYWORD(do) KEYWORD(double) KEYWORD(false)    \
  KEYWORD(float) KEYWORD(for) KEYWORD(if) KEYWORD(int) KEYWORD(namespace) KEYWORD(new)             \
  KEYWORD(not) KEYWORD(operator) KEYWORD(or) KEYWORD(requires) KEYWORD(return) KEYWORD(static)     \
  KEYWORD(struct) KEYWORD(template) KEYWORD(this) KEYWORD(true) KEYWORD(typename) KEYWORD(using)   \
  KEYWORD(void) KEYWORD(while) WORD(_arg) WORD(_m) WORD(_s) WORD(a) WORD(above) WORD(accuracy)     \
  WORD(activation) WORD(adam) WORD(adamw) WORD(adapted) WORD(adaptive) WORD(adaptive_avg_pool1d)   \
  WORD(adaptive_avg_pool2d) WORD(adaptive_avg_pool3d) WORD(adaptive_log_softmax)                   \
  WORD(adaptive_max_pool1d)                                                                        \
  WORD(adaptive_max_pool2d) WORD(adaptive_max_pool3d) WORD(add) WORD(affine) WORD(affine_grid)     \
  WORD(after) WORD(again) WORD(align_corners) WORD(alike) WORD(all) WORD(all_reduce)               \
  WORD(alloc_storage) WORD(alone) WORD(along) WORD(alpha_dropout) WORD(already) WORD(alternative)  \
  WORD(alternatives) WORD(always) WORD(amsgrad) WORD(an) WORD(angle) WORD(another) WORD(any)       \
  WORD(apart) WORD(applied) WORD(apply) WORD(approximate) WORD(arange_like) WORD(are)              \
  WORD(arg_extreme)                                                                                \
  WORD(argument) WORD(arguments) WORD(array) WORD(as) WORD(as_tensor) WORD(ask) WORD(assigned)     \
  WORD(at) WORD(attn_mask) WORD(average) WORD(averaged) WORD(averaged_model)                       \
  WORD(averages) WORD(avg_pool1d)                                                                  \
  WORD(avg_pool2d) WORD(avg_pool3d) WORD(backward) WORD(bag) WORD(batch) WORD(batch_first)         \
  WORD(batch_norm1d) WORD(batch_norm2d) WORD(batch_norm3d) WORD(batches) WORD(bce_loss)            \
  WORD(bce_with_logits) WORD(be) WORD(become) WORD(before) WORD(begin) WORD(begin_step)            \
  WORD(belongs) WORD(below) WORD(bernoulli) WORD(best) WORD(betas) WORD(between) WORD(bf16)        \
  WORD(bf16_compress) WORD(bfloat16) WORD(bias) WORD(bidirectional) WORD(bilinear) WORD(bind)      \
  WORD(bind_state) WORD(blank) WORD(body) WORD(both) WORD(braces) WORD(brackets) WORD(branches)    \
  WORD(broadcast) WORD(broadcast_buffers) WORD(bucket) WORD(bucket_cap) WORD(bucket_caps)          \
  WORD(bucket_plan) WORD(bucket_plan_of) WORD(buffer) WORD(buffer_comm_hook) WORD(buffer_spec)     \
  WORD(buffers) WORD(but) WORD(by) WORD(byte) WORD(bytes) WORD(C) WORD(c_0) WORD(call)             \
  WORD(called) WORD(calls) WORD(can) WORD(cannot) WORD(cast) WORD(cast_forward_inputs)             \
  WORD(cast_inputs) WORD(casts) WORD(causal_attention) WORD(causal_conv1d) WORD(ceil_mode)         \
  WORD(cell) WORD(celu) WORD(changes) WORD(channel) WORD(channel_shuffle) WORD(channels)           \
  WORD(characters) WORD(check) WORD(checkpoint) WORD(checkpointer) WORD(child)                     \
  WORD(children) WORD(choice)                                                                      \
  WORD(choose) WORD(chosen) WORD(circular) WORD(circular_pad1d) WORD(circular_pad2d)               \
  WORD(circular_pad3d) WORD(classes) WORD(clip_grad_norm) WORD(clip_grad_value) WORD(clone)        \
  WORD(come) WORD(comm_hook) WORD(compile) WORD(compiler) WORD(composition) WORD(computed)         \
  WORD(computes) WORD(concat) WORD(confusion) WORD(consists) WORD(constant) WORD(constant_pad1d)   \
  WORD(constant_pad2d) WORD(constant_pad3d) WORD(constructor) WORD(container) WORD(containers)     \
  WORD(context) WORD(conv) WORD(conv1d) WORD(conv2d) WORD(conv3d) WORD(conv_transpose1d)           \
  WORD(conv_transpose2d) WORD(conv_transpose3d) WORD(convert) WORD(convolution)                    \
  WORD(convolutions)                                                                               \
  WORD(copied) WORD(copy) WORD(cosine_annealing_lr) WORD(cosine_embedding_loss) WORD(count)        \
  WORD(count_include_pad)                                                                          \
  WORD(counted) WORD(cross_entropy) WORD(ctc_loss) WORD(cumsum) WORD(cuts) WORD(dampening)         \
  WORD(data) WORD(data_loader) WORD(dataset) WORD(decay) WORD(delay)                               \
  WORD(delay_all_reduce) WORD(delayed)                                                             \
  WORD(dense) WORD(deque) WORD(describe) WORD(description) WORD(diagnostic) WORD(differ)           \
  WORD(dilation) WORD(dim) WORD(dim_t) WORD(dimension) WORD(dimensions) WORD(direction)            \
  WORD(directory) WORD(distances) WORD(div) WORD(divisible) WORD(divisor_override)                 \
  WORD(does) WORD(dot)                                                                             \
  WORD(drop_last) WORD(dropout) WORD(dropout1d) WORD(dropout2d) WORD(dropout3d) WORD(dtype)        \
  WORD(dx) WORD(dynamic) WORD(e) WORD(each) WORD(edge) WORD(eight) WORD(einsum) WORD(element)      \
  WORD(element_kind) WORD(element_type) WORD(elements) WORD(elementwise) WORD(elementwise_affine)  \
  WORD(elu) WORD(embed_dim) WORD(embedded) WORD(embedding) WORD(embedding_bag)                     \
  WORD(embedding_dim)                                                                              \
  WORD(embeddings) WORD(empty) WORD(end) WORD(end_dim) WORD(endian) WORD(epoch) WORD(eps)          \
  WORD(equal)                                                                                      \
  WORD(equally) WORD(error_if_nonfinite) WORD(errors) WORD(events) WORD(every) WORD(exceptions)    \
  WORD(exist) WORD(expects) WORD(expression) WORD(expressions) WORD(extent) WORD(extents) WORD(f)  \
  WORD(factor) WORD(fc) WORD(fc1) WORD(feature_alpha_dropout) WORD(features) WORD(files)           \
  WORD(find_lr) WORD(find_unused_parameters) WORD(finish) WORD(finish_initialization) WORD(first)  \
  WORD(fit) WORD(flatten) WORD(float16) WORD(fno) WORD(fold) WORD(for_steps) WORD(forward)         \
  WORD(fraction)                                                                                   \
  WORD(fractional_max_pool2d) WORD(fractional_max_pool3d) WORD(free_storage) WORD(freeze)          \
  WORD(from) WORD(from_chars) WORD(frozen) WORD(full_like) WORD(full_precision_at) WORD(function)  \
  WORD(functional_call) WORD(g) WORD(gaussian_nll_loss) WORD(gelu) WORD(generate)                  \
  WORD(get_state_dict) WORD(give) WORD(given) WORD(gives) WORD(glu) WORD(go) WORD(goes) WORD(got)  \
  WORD(grad_scaler) WORD(gradient) WORD(gradient_accumulation) WORD(gradient_divide_factor)        \
  WORD(gradients) WORD(graph) WORD(grid_sample) WORD(group) WORD(group_norm) WORD(groups)          \
  WORD(groups_by_module) WORD(gru) WORD(gru_cell) WORD(h_0) WORD(hana) WORD(handle)                \
  WORD(hard_sigmoid) WORD(hardshrink) WORD(hardswish) WORD(hardtanh) WORD(has) WORD(have)          \
  WORD(header) WORD(height) WORD(here) WORD(hidden_size) WORD(hinge_embedding_loss) WORD(hold)     \
  WORD(holds) WORD(hook) WORD(how) WORD(hpp) WORD(huber_loss) WORD(i) WORD(identity) WORD(ignore)  \
  WORD(ignored) WORD(ignored_if) WORD(ike) WORD(Ikebana) WORD(ikebana) WORD(In) WORD(in)           \
  WORD(in1_features) WORD(in2_features) WORD(in_channels) WORD(in_features) WORD(include)          \
  WORD(index) WORD(indices) WORD(infer) WORD(inference_model) WORD(inferred) WORD(init_sync)       \
  WORD(initial) WORD(initialize) WORD(initialized) WORD(inner) WORD(input) WORD(input_kind)        \
  WORD(input_size) WORD(inputs) WORD(instance) WORD(instance_norm1d) WORD(instance_norm2d)         \
  WORD(instance_norm3d) WORD(int32_t) WORD(int64_t) WORD(int8) WORD(into) WORD(invariant)          \
  WORD(io)                                                                                         \
  WORD(is) WORD(is_causal) WORD(it) WORD(its) WORD(itself) WORD(join) WORD(jvp) WORD(kdim)         \
  WORD(keepdim) WORD(keeps) WORD(kept) WORD(kernel) WORD(key) WORD(key_padding_mask) WORD(keys)    \
  WORD(kind) WORD(kl_div) WORD(known) WORD(knows) WORD(l1_loss) WORD(label) WORD(label_smoothing)  \
  WORD(labels) WORD(lane) WORD(largest) WORD(last) WORD(later) WORD(launch) WORD(layer)            \
  WORD(layer_norm)                                                                                 \
  WORD(lazy) WORD(lazy_linear) WORD(lazy_model) WORD(leaky_relu) WORD(learned_positions)           \
  WORD(learning) WORD(least) WORD(leave) WORD(leaves) WORD(left) WORD(length) WORD(lengths)        \
  WORD(libc) WORD(library) WORD(libstdc) WORD(linear) WORD(linear_lr) WORD(list) WORD(literal)     \
  WORD(literals)                                                                                   \
  WORD(little) WORD(load) WORD(load_state_dict) WORD(loader) WORD(loaders)                         \
  WORD(local_response_norm) WORD(log)                                                              \
  WORD(log_sigmoid) WORD(log_softmax) WORD(logit) WORD(logits) WORD(logsumexp) WORD(loss)          \
  WORD(loss_backward) WORD(lost) WORD(lp_pool1d) WORD(lp_pool2d) WORD(lp_pool3d) WORD(lr)          \
  WORD(lr_scheduler) WORD(lstm) WORD(lstm_cell) WORD(m) WORD(machine) WORD(made) WORD(make)        \
  WORD(makes) WORD(managed_modules) WORD(many) WORD(map) WORD(map_tensors)                         \
  WORD(margin_ranking_loss) WORD(mask) WORD(masked_fill) WORD(masks) WORD(matmul) WORD(matrix)     \
  WORD(max) WORD(max_length) WORD(max_norm) WORD(max_pool1d) WORD(max_pool2d) WORD(max_pool3d)     \
  WORD(max_unpool1d) WORD(max_unpool2d) WORD(max_unpool3d) WORD(maximize) WORD(may) WORD(mean)     \
  WORD(means) WORD(meet) WORD(members) WORD(memory) WORD(memory_key_padding_mask) WORD(merged)     \
  WORD(mesh) WORD(methods) WORD(metric) WORD(min) WORD(minus) WORD(mish) WORD(mixed_precision)     \
  WORD(mixed_precision_at) WORD(mode) WORD(model) WORD(models) WORD(module) WORD(module_call)      \
  WORD(module_gradients) WORD(module_list) WORD(modules) WORD(moment) WORD(momentum) WORD(more)    \
  WORD(most) WORD(move) WORD(mse_loss) WORD(mul) WORD(multihead_attention) WORD(multiple)          \
  WORD(multiply_adds) WORD(must) WORD(N) WORD(n) WORD(name) WORD(named) WORD(named_parameters)     \
  WORD(names) WORD(narrow) WORD(need) WORD(need_weights) WORD(needed) WORD(needs) WORD(neither)    \
  WORD(nesterov) WORD(net) WORD(network) WORD(networks) WORD(next) WORD(nll_loss) WORD(no)         \
  WORD(no_sync) WORD(none) WORD(nonlinearity) WORD(nor) WORD(norm) WORD(norm_first)                \
  WORD(normal_like) WORD(normalized_shape) WORD(nothing) WORD(num_channels) WORD(num_embeddings)   \
  WORD(num_features) WORD(num_groups) WORD(num_heads) WORD(num_layers) WORD(number) WORD(numbers)  \
  WORD(observed) WORD(of) WORD(on) WORD(once) WORD(one) WORD(ones) WORD(only) WORD(operand)        \
  WORD(operations)                                                                                 \
  WORD(optimizer) WORD(optimizer_in_backward) WORD(option) WORD(optional) WORD(options)            \
  WORD(order) WORD(other) WORD(others) WORD(otherwise) WORD(ours) WORD(out) WORD(out_channels)     \
  WORD(out_features) WORD(outlive) WORD(outlives) WORD(output) WORD(output_padding)                \
  WORD(output_size) WORD(outputs) WORD(override) WORD(override_at) WORD(own) WORD(owner)           \
  WORD(pack_arguments) WORD(packed) WORD(pad) WORD(padded) WORD(padding) WORD(padding_idx)         \
  WORD(padding_mode) WORD(pair) WORD(parallel) WORD(parameter) WORD(parameter_spec)                \
  WORD(parameters) WORD(part) WORD(parts) WORD(passed) WORD(passes) WORD(path) WORD(paths)         \
  WORD(patterns)                                                                                   \
  WORD(per) WORD(permute) WORD(pixel_shuffle) WORD(pixel_unshuffle) WORD(pointer)                  \
  WORD(poisson_nll_loss) WORD(Policy) WORD(policy) WORD(pooling) WORD(position) WORD(positions)    \
  WORD(post_local_sgd) WORD(post_local_sgd_optimizer) WORD(precision) WORD(prediction)             \
  WORD(prefetch) WORD(prelu) WORD(probabilities) WORD(probability) WORD(process_group)             \
  WORD(product) WORD(products) WORD(proj_size) WORD(prompt) WORD(quantize) WORD(quantize_hook)     \
  WORD(query) WORD(random) WORD(random_split) WORD(randomness) WORD(rank) WORD(ranks) WORD(rate)   \
  WORD(reach) WORD(reaches) WORD(rearrange) WORD(rebuild) WORD(recurrent)                          \
  WORD(reduce_lr_on_plateau) WORD(reduced)                                                         \
  WORD(reduces) WORD(reduction) WORD(reference) WORD(reflect) WORD(reflection_pad1d)               \
  WORD(reflection_pad2d) WORD(reflection_pad3d) WORD(reflects) WORD(relu) WORD(relu6)              \
  WORD(remove_parametrizations) WORD(repeat)                                                       \
  WORD(replica) WORD(replicate) WORD(replicate_policy) WORD(replicated) WORD(replicates)           \
  WORD(replication_pad1d) WORD(replication_pad2d) WORD(replication_pad3d) WORD(reports)            \
  WORD(requires_grad)                                                                              \
  WORD(requires_gradient_sync) WORD(reset) WORD(reshape) WORD(residual) WORD(resolved)             \
  WORD(result) WORD(returns) WORD(rms) WORD(rms_norm) WORD(rmsprop) WORD(rnn) WORD(rnn_cell)       \
  WORD(rotary_positions) WORD(rounded) WORD(row) WORD(rows) WORD(rrelu) WORD(run) WORD(runs)       \
  WORD(S) WORD(s) WORD(safetensors) WORD(same) WORD(same_padding) WORD(sample)                     \
  WORD(sample_loader)                                                                              \
  WORD(samples) WORD(save) WORD(saved) WORD(saved_spec) WORD(say) WORD(scalar) WORD(scale_factor)  \
  WORD(scale_grad_by_freq) WORD(scaler) WORD(scalers) WORD(schedule) WORD(schedulers)              \
  WORD(schedules) WORD(scores) WORD(second)                                                        \
  WORD(sections) WORD(seed)                                                                        \
  WORD(select) WORD(selu) WORD(sequence) WORD(sequences) WORD(sequential) WORD(sequential_lr)      \
  WORD(set_process_group)                                                                          \
  WORD(several) WORD(sgd) WORD(shape) WORD(shape_list) WORD(shape_span) WORD(shapes) WORD(shard)   \
  WORD(shard_optimizer) WORD(sharded) WORD(shards) WORD(shares) WORD(shows) WORD(shuffle)          \
  WORD(sigmoid) WORD(silu) WORD(sinusoidal_encoding) WORD(size) WORD(size_t) WORD(sizes)           \
  WORD(skip_unused) WORD(slice) WORD(smaller) WORD(smooth_l1_loss) WORD(snapshot) WORD(so)         \
  WORD(soft_margin_loss) WORD(softmax) WORD(softplus) WORD(softshrink) WORD(softsign) WORD(sole)   \
  WORD(sparse) WORD(spatial) WORD(spectral_norm) WORD(split) WORD(squared) WORD(stack)             \
  WORD(stand)                                                                                      \
  WORD(standard) WORD(standard_scaler) WORD(stands) WORD(start) WORD(start_dim) WORD(state)        \
  WORD(state_dict) WORD(state_view) WORD(stateful) WORD(states) WORD(static_graph) WORD(stays)     \
  WORD(std) WORD(stdlib) WORD(step) WORD(step_elements) WORD(step_lr) WORD(step_size) WORD(steps)  \
  WORD(stop_gradient) WORD(store) WORD(strata) WORD(stride) WORD(string) WORD(string_view)         \
  WORD(structs) WORD(sub) WORD(such) WORD(sum) WORD(summary) WORD(sums) WORD(support)              \
  WORD(symbols) WORD(sync_batch_norm) WORD(sync_batch_norm1d) WORD(sync_batch_norm2d)              \
  WORD(sync_batch_norm3d) WORD(t) WORD(t_max) WORD(T) WORD(take) WORD(takes) WORD(tanh)            \
  WORD(tanhshrink) WORD(target)                                                                    \
  WORD(targets) WORD(temporary) WORD(tensor) WORD(tensor_dataset) WORD(tensor_of)                  \
  WORD(tensor_view) WORD(tensors) WORD(than) WORD(that) WORD(the) WORD(their) WORD(theirs)         \
  WORD(them) WORD(then) WORD(there) WORD(these) WORD(they) WORD(thing) WORD(third) WORD(those)     \
  WORD(thread_group) WORD(threads) WORD(threshold) WORD(time) WORD(to) WORD(to_dot)                \
  WORD(together)                                                                                   \
  WORD(too) WORD(trace_of) WORD(traced) WORD(track_running_stats) WORD(train) WORD(train_step)     \
  WORD(trainable)                                                                                  \
  WORD(trained) WORD(training) WORD(transformer) WORD(transformer_decoder)                         \
  WORD(transformer_decoder_layer) WORD(transformer_encoder) WORD(transformer_encoder_layer)        \
  WORD(transpose) WORD(transposed) WORD(treats) WORD(triplet_margin_loss) WORD(truth) WORD(tuple)  \
  WORD(twice) WORD(two) WORD(type) WORD(uint8_t) WORD(unbatched) WORD(unchanged) WORD(under)       \
  WORD(unflatten) WORD(unflattened_size) WORD(unfold) WORD(uniform_like) WORD(unordered_map)       \
  WORD(unpack_arguments) WORD(up) WORD(update_bn) WORD(updated) WORD(upsample) WORD(use)           \
  WORD(used) WORD(uses)                                                                            \
  WORD(v) WORD(validate) WORD(validation_loss) WORD(value) WORD(values) WORD(var) WORD(variable) WORD(variances)         \
  WORD(variant) WORD(vdim) WORD(vector) WORD(view) WORD(was) WORD(way) WORD(weight)                \
  WORD(weight_decay) WORD(weight_norm) WORD(weights) WORD(what) WORD(when) WORD(where)             \
  WORD(which)                                                                                      \
  WORD(whole) WORD(whose) WORD(wide) WORD(width) WORD(window) WORD(windows) WORD(with)             \
  WORD(within) WORD(without) WORD(word) WORD(words) WORD(workers) WORD(wrap) WORD(writable)        \
  WORD(writable_input) WORD(writable_output) WORD(write) WORD(writes) WORD(x) WORD(y) WORD(zero)   \
  WORD(zero_pad1d) WORD(zero_pad2d) WORD(zero_pad3d) WORD(zeros)

template <class Number, class... Rest>
struct word_types {
  using number = Number;
  // clang's own: std::tuple_element takes as many templates as there are words.
  template <std::size_t I>
  using at = __type_pack_element<I, Rest...>;
};

// Declared and never defined, all but `n`, of which there are arrays: clang takes a tenth of a
// second to define so many.
#define IKEBANA_WORD(w) struct w;
#define IKEBANA_KEYWORD(w) struct w##_;
inline auto make_words() {
  IKEBANA_WORDS(IKEBANA_WORD, IKEBANA_KEYWORD)
  struct n {};
#undef IKEBANA_WORD
#undef IKEBANA_KEYWORD
#define IKEBANA_WORD(w) , w
#define IKEBANA_KEYWORD(w) , w##_
  return word_types<n IKEBANA_WORDS(IKEBANA_WORD, IKEBANA_KEYWORD)>{};
}
#undef IKEBANA_WORD
#undef IKEBANA_KEYWORD

#define IKEBANA_WORD(w) #w "\n"
/// The words as one text, which clang reads faster than an array of them.
inline constexpr std::string_view word_text = IKEBANA_WORDS(IKEBANA_WORD, IKEBANA_WORD);
#undef IKEBANA_WORD
#undef IKEBANA_WORDS

/// The words by their hashes, for constant expressions, in which comparing with all of them would
/// take a compiler seconds. Templates, as nothing but a refusal needs the table; it takes clang
/// little more than a step for each word.
template <class>
struct word_table {
  static constexpr std::size_t size = 4096;
  unsigned short begins[size]{};  ///< The position of a word in the text and 1, or 0.
  unsigned short places[size]{};  ///< The index of that word.
  unsigned short count = 0;

  static constexpr std::size_t hash(const char* word, std::size_t n) {
    if (n == 0) return 0;
    std::uint32_t h = static_cast<std::uint32_t>(n);
    for (const std::size_t i : {std::size_t{0}, n / 3, n / 2, n - n / 4 - 1, n - 1})
      h = h * 31 + static_cast<unsigned char>(word[i]);
    return h * 0x9e3779b1u >> 20;
  }
  constexpr word_table() {
    const char* const text = word_text.data();
    const char* const text_end = text + word_text.size();
    for (const char* word = text; word != text_end; ++count) {
      const char* const end =
          __builtin_char_memchr(word, '\n', static_cast<std::size_t>(text_end - word));
      std::size_t place = hash(word, static_cast<std::size_t>(end - word));
      while (begins[place] != 0) place = (place + 1) % size;
      begins[place] = static_cast<unsigned short>(word - text + 1);
      places[place] = count;
      word = end + 1;
    }
  }
};
template <class T>
inline constexpr word_table<T> words_by_hash{};

/// The index of a word; the number of words if it is not there.
template <class T>
constexpr std::size_t find_word(std::string_view word) {
  const word_table<T>& words = words_by_hash<T>;
  std::size_t place = words.hash(word.data(), word.size());
  for (; words.begins[place] != 0; place = (place + 1) % words.size) {
    const std::string_view from = word_text.substr(words.begins[place] - 1u);
    if (from.starts_with(word) && from[word.size()] == '\n') return words.places[place];
  }
  return words.count;
}

/// The type of the I-th word.
template <std::size_t I>
using word = typename decltype(make_words())::template at<I>;
/// That of `n`.
using number_word = decltype(make_words())::number;

}  // namespace ikebana::detail

#endif
