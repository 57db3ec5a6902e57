//! The bitmap that an array has now.
//! Owns: [`CurrentBitmap`]. Not here: what the bitmap does (`bitmap`), who replaces it (`bitmap_changer`).

use crate::World;
use crate::steward::bitmap::Bitmap;
use std::cell::RefCell;
use std::rc::Rc;

/// The bitmap of an array, if it has one; on shard 0 only.
pub(crate) struct CurrentBitmap<W: World>(RefCell<Option<Rc<Bitmap<W>>>>);

impl<W: World> CurrentBitmap<W> {
    pub(crate) fn new(bitmap: Option<Rc<Bitmap<W>>>) -> Rc<CurrentBitmap<W>> {
        Rc::new(CurrentBitmap(RefCell::new(bitmap)))
    }

    pub(crate) fn get(&self) -> Option<Rc<Bitmap<W>>> {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, bitmap: Option<Rc<Bitmap<W>>>) {
        let before = self.0.replace(bitmap);
        assert!(before.is_some() != self.0.borrow().is_some(), "a bitmap is taken away before there is another one");
    }
}
