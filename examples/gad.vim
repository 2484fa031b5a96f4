" gad from Vim. Put this file into ~/.vim/plugin/.
"
"   :Gad              hand in the buffer, or the lines of a range, as a new session; its output grows in a window
"   :GadReply TEXT    send the next message to the session of this window, or to the newest one
"   :GadStop          halt it; a reply resumes it
"
" GadState() says how it stands, for 'statusline'. g:gad_spool names the spool.

if exists('g:loaded_gad') || !has('timers')
  finish
endif
let g:loaded_gad = 1
let g:gad_spool = get(g:, 'gad_spool', (empty($GAD_HOME) ? expand('~/agents') : $GAD_HOME) . '/spool')
let s:newest = ''

" Write aside and rename: the text is there whole or not at all, and a reply that was not taken yet stays.
function! s:Put(session, name, lines) abort
  let place = g:gad_spool . '/' . a:session . '/'
  if filereadable(place . a:name)
    throw 'gad: ' . a:name . ' has not been taken yet; does the daemon run?'
  endif
  call writefile(a:lines, place . '.' . a:name . '.' . getpid())
  call rename(place . '.' . a:name . '.' . getpid(), place . a:name)
endfunction

function! s:Session() abort
  let found = get(b:, 'gad_session', s:newest)
  if empty(found)
    throw 'gad: no session yet; :Gad begins one'
  endif
  return found
endfunction

function! s:Begin(lines) abort
  let s:newest = strftime('vim-%Y%m%d-%H%M%S-') . getpid()
  while isdirectory(g:gad_spool . '/' . s:newest)
    let s:newest .= 'x'
  endwhile
  call mkdir(g:gad_spool . '/' . s:newest)
  call s:Put(s:newest, 'input.txt', a:lines)
  call s:Show(s:newest)
endfunction

" The window: reads output.txt again as it grows, and stays at its end when the cursor is there.
function! s:Show(session) abort
  execute 'botright split' fnameescape(g:gad_spool . '/' . a:session . '/output.txt')
  setlocal autoread nomodifiable noswapfile nobackup
  let b:gad_session = a:session
  call timer_start(250, function('s:Follow', [bufnr('%'), 0]), {'repeat': -1})
endfunction

function! s:Follow(buffer, ignored, timer) abort
  if !bufexists(a:buffer)
    call timer_stop(a:timer)
    return
  endif
  let window = bufwinid(a:buffer)
  if window < 0 || !filereadable(bufname(a:buffer))
    return
  endif
  let at_end = line('.', window) >= line('$', window)
  call win_execute(window, 'setlocal modifiable | silent! edit! | setlocal nomodifiable autoread')
  call setbufvar(a:buffer, 'gad_session', fnamemodify(bufname(a:buffer), ':h:t'))
  if at_end
    call win_execute(window, 'normal! G')
  endif
endfunction

function! GadState() abort
  let status = g:gad_spool . '/' . get(b:, 'gad_session', s:newest) . '/status.txt'
  for line in filereadable(status) ? readfile(status) : []
    if line =~# '^state: '
      return line[7:]
    endif
  endfor
  return ''
endfunction

command! -range=% Gad call s:Begin(getline(<line1>, <line2>))
command! -nargs=+ GadReply call s:Put(s:Session(), 'reply.txt', [<q-args>])
command! GadStop call s:Put(s:Session(), 'stop.txt', [])
